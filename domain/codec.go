package domain

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	derive "github.com/google/jsonschema-go/jsonschema"
	validate "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// A Codec converts values of T to and from JSON and describes that JSON to the
// model with a schema. Tools check the document before Decode and after Encode
// against the schema. A Codec is stateless and safe for concurrent use.
type Codec[T any] interface {
	// Schema returns a JSON Schema, draft 2020-12 or draft-07 by its $schema.
	Schema() json.RawMessage
	// Decode returns the value of a JSON document.
	Decode(json.RawMessage) (T, error)
	// Encode returns the JSON document of a value.
	Encode(T) (json.RawMessage, error)
}

// JSON returns a codec that uses encoding/json, with a schema derived from the Go type
// T. Fields without omitempty or omitzero are required, and unknown fields are
// rejected. The jsonschema tag of a field is its description. A json.RawMessage is any
// JSON value, and a json.Number is any number. A []byte is a base64 string, or null if
// it is nil. If T has no schema (a recursive type, a channel, a function), Make returns
// ErrBadSchema for the codec.
func JSON[T any]() Codec[T] { return Constrained[T]("{}") }

// Constrained returns the codec of [JSON] with a JSON Merge Patch (RFC 7396)
// applied to its schema. The patch adds constraints that a Go type cannot
// express: minimum, enum, pattern. Make returns ErrBadSchema if the patch is
// not JSON.
func Constrained[T any](patch string) Codec[T] {
	schema, err := schemaOf[T](patch)
	return schemaCodec[T]{schema, err}
}

// A schemaCodec is the codec of JSON and Constrained.
type schemaCodec[T any] struct {
	// schema is the schema derived from T, after the patch. Nil: the derivation failed,
	// and broken is its error.
	schema json.RawMessage
	broken error
}

// Schema returns the schema that was derived when the codec was made.
func (c schemaCodec[T]) Schema() json.RawMessage { return c.schema }

// schemaError returns the error of deriving the schema, or nil. Make returns this
// error.
func (c schemaCodec[T]) schemaError() error { return c.broken }

// Decode returns an error for an unknown field, a value that does not fit T,
// and a second document after the first.
func (c schemaCodec[T]) Decode(data json.RawMessage) (value T, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&value); err != nil {
		return *new(T), err
	}
	if _, err := d.Token(); err != io.EOF {
		return *new(T), errors.New("there is more than one JSON document")
	}
	return value, nil
}

// Encode returns the document without escapes for <, > and &, which only browsers need.
func (c schemaCodec[T]) Encode(value T) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// schemaOf derives the schema of T and applies a JSON Merge Patch to it.
func schemaOf[T any](patch string) (json.RawMessage, error) {
	derived, err := derive.For[T](&derive.ForOptions{TypeSchemas: map[reflect.Type]*derive.Schema{
		reflect.TypeFor[json.RawMessage](): {},
		reflect.TypeFor[[]byte]():          {Types: []string{"null", "string"}, ContentEncoding: "base64"},
		reflect.TypeFor[json.Number]():     {Type: "number"},
	}})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSchema, err)
	}
	data, err := json.Marshal(derived)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSchema, err)
	}
	schema, err := validate.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSchema, err)
	}
	change, err := validate.UnmarshalJSON(strings.NewReader(patch))
	if err != nil {
		return nil, fmt.Errorf("%w: patch: %w", ErrBadSchema, err)
	}
	data, err = json.Marshal(merge(schema, change))
	return data, err
}

// merge applies a JSON Merge Patch to target, in place where it is an object
// (RFC 7396, section 2).
func merge(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for key, change := range changes {
		if change == nil {
			delete(object, key)
		} else {
			object[key] = merge(object[key], change)
		}
	}
	return object
}

// A Violation is one location at which a document does not fit a schema, with
// the reason.
type Violation struct {
	// Path is a JSON Pointer. Empty: the whole document.
	Path string
	// Detail is the reason, in words for the model.
	Detail string
}

// String returns the path and the detail.
func (f Violation) String() string {
	if f.Path == "" {
		return f.Detail
	}
	return f.Path + ": " + f.Detail
}

// A ValidationError lists the violations of a schema in a document. It matches
// ErrInvalidInput or ErrInvalidOutput.
type ValidationError struct {
	// Violations has at least one element, and is sorted by path.
	Violations []Violation
	// kind is ErrInvalidInput or ErrInvalidOutput.
	kind error
	// ownText is the tool's own text for the model. Empty: it has none.
	ownText string
}

// OwnText returns the text with which the tool itself explains the fault to the model.
// Empty: the tool has no text for it.
func (m *ValidationError) OwnText() string { return m.ownText }

// Error lists the violations, separated by semicolons.
func (m *ValidationError) Error() string {
	texts := make([]string, len(m.Violations))
	for i, f := range m.Violations {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}

// Is reports whether target is the sentinel of m.
func (m *ValidationError) Is(target error) bool { return target == m.kind }

// invalid returns a ValidationError with one violation. It takes the path from
// detail if that is an error of encoding/json with a field.
func invalid(kind error, detail error) error {
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](detail); ok && mistyped.Field != "" {
		path := "/" + strings.ReplaceAll(mistyped.Field, ".", "/")
		return &ValidationError{Violations: []Violation{{path, fmt.Sprintf("%s does not fit %s", mistyped.Value, mistyped.Type)}}, kind: kind}
	}
	return &ValidationError{Violations: []Violation{{Detail: detail.Error()}}, kind: kind}
}

// A schema is a compiled JSON Schema. It is immutable.
type schema struct {
	// source is the schema as the codec returned it.
	source json.RawMessage
	// document is the decoded source.
	document any
	compiled *validate.Schema
}

// A noLoader rejects every reference from a schema to another document, so
// that compiling a schema never reads a file or a URL.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("it refers to another document")
}

// compile parses and compiles a schema. It returns an ErrBadSchema for an
// invalid one.
func compile(source json.RawMessage) (schema, error) {
	document, err := parseSchema(source)
	if err != nil {
		return schema{}, err
	}
	c := validate.NewCompiler()
	c.UseLoader(noLoader{})
	const url = "tool:///schema.json" // a relative one is resolved in the folder that the process is in
	if err := c.AddResource(url, document); err != nil {
		return schema{}, fmt.Errorf("%w: %w", ErrBadSchema, err)
	}
	compiled, err := c.Compile(url)
	if err != nil {
		return schema{}, fmt.Errorf("%w: %w", ErrBadSchema, err)
	}
	return schema{bytes.Clone(source), document, compiled}, nil
}

// check parses a document and validates it. It returns the decoded value, or a
// *ValidationError that matches sentinel.
func (s schema) check(document json.RawMessage, sentinel error) (any, error) {
	value, err := parseJSON(document)
	if err != nil {
		return nil, invalid(sentinel, fmt.Errorf("not JSON: %w", err))
	}
	if err := checkNumberSizes(value, sentinel); err != nil {
		return nil, err
	}
	return value, s.validate(value, sentinel)
}

// validate checks a decoded value. It returns a *ValidationError that matches sentinel,
// with its violations sorted by path, or nil.
func (s schema) validate(value any, sentinel error) error {
	err := s.compiled.Validate(value)
	if err == nil {
		return nil
	}
	failed, ok := errors.AsType[*validate.ValidationError](err)
	if !ok {
		return invalid(sentinel, err)
	}
	m := &ValidationError{kind: sentinel}
	m.collect(*failed)
	slices.SortFunc(m.Violations, func(a, b Violation) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Detail, b.Detail))
	})
	return m
}

// parseJSON decodes a document and keeps numbers as written. A document
// without numbers is decoded by json.Unmarshal, which takes a third of the
// time and returns the same value.
func parseJSON(document json.RawMessage) (value any, err error) {
	if !hasDigit(document) && json.Unmarshal(document, &value) == nil {
		return value, nil
	}
	return validate.UnmarshalJSON(bytes.NewReader(document))
}

// hasDigit reports whether a document has a digit outside its strings. Without such a
// digit the document has no number.
func hasDigit(document json.RawMessage) bool {
	inString := false
	for i := 0; i < len(document); i++ {
		switch c := document[i]; {
		case c == '"':
			inString = !inString
		case c == '\\' && inString:
			i++
		case '0' <= c && c <= '9' && !inString:
			return true
		}
	}
	return false
}

// collect appends the violations in the tree of errors e to m, in no particular order;
// the caller sorts them. It skips inner nodes of the tree, which only group their
// causes.
func (m *ValidationError) collect(e validate.ValidationError) {
	for _, cause := range e.Causes {
		m.collect(*cause)
	}
	bare := len(e.Causes) == 0
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		if !bare {
			return
		}
	}
	e.Causes = nil
	unit := e.BasicOutput()
	m.Violations = append(m.Violations, Violation{unit.InstanceLocation, unit.Error.String()})
}
