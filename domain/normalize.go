package domain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	validate "github.com/santhosh-tekuri/jsonschema/v6"
)

// Ignoring returns a codec that accepts top-level keys that its schema does
// not have and drops them before the input is checked: a model may send them
// out of habit. The schema stays that of the codec, so that a model is not told
// of the keys. All other unknown keys stay invalid.
func Ignoring[T any](c Codec[T], keys ...string) Codec[T] { return ignoringCodec[T]{c, keys} }

type ignoringCodec[T any] struct {
	Codec[T]
	keys []string
}

// schemaError returns why the codec has no schema, or nil.
func (c ignoringCodec[T]) schemaError() error {
	if broken, ok := c.Codec.(interface{ schemaError() error }); ok {
		return broken.schemaError()
	}
	return nil
}

func (c ignoringCodec[T]) ignored() []string { return c.keys }

// accept checks an input and returns the document to decode. That is the input
// itself, or a new document if the input has one of the ignored keys, a number
// that is written as a string, or an integer that is written with a fraction or
// an exponent. It returns a *ValidationError that is an ErrInvalidInput.
func (s schema) accept(raw json.RawMessage, ignored []string) (json.RawMessage, error) {
	value, err := parseJSON(raw)
	if err != nil {
		return nil, invalid(ErrInvalidInput, fmt.Errorf("not JSON: %w", err))
	}
	if err := checkNumberSizes(value, ErrInvalidInput); err != nil {
		return nil, err
	}
	changed := false
	if object, ok := value.(map[string]any); ok {
		for _, key := range ignored {
			if _, sent := object[key]; sent {
				delete(object, key)
				changed = true
			}
		}
	}
	n := numbers{root: s.document}
	value = n.convert(s.document, value)
	if err := s.validate(value, ErrInvalidInput); err != nil {
		return nil, err
	}
	if !changed && !n.changed {
		return raw, nil
	}
	document, err := json.Marshal(value)
	if err != nil {
		return nil, invalid(ErrInvalidInput, err)
	}
	return document, nil
}

// numbers converts the parts of a value for which a schema allowsType a number.
type numbers struct {
	root    any // the schema document, for local references
	changed bool
}

// convert returns a value with each string replaced by the number in it, where
// the schema allowsType a number and no string. It follows properties, items and
// local references; a part that only a combination of schemas describes stays
// as it is.
func (n *numbers) convert(schema, value any) any {
	s := n.resolve(schema)
	if s == nil {
		return value
	}
	switch v := value.(type) {
	case string:
		if number, ok := parseNumber(v); ok && allowsType(s, "integer", "number") && !allowsType(s, "string") {
			n.changed = true
			return n.convert(s, number)
		}
	case json.Number:
		if integer, ok := integerDigits(string(v)); ok && allowsType(s, "integer") {
			n.changed = true
			return json.Number(integer)
		}
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		for key, member := range v {
			if described, ok := properties[key]; ok {
				v[key] = n.convert(described, member)
			} else if rest, ok := s["additionalProperties"]; ok {
				v[key] = n.convert(rest, member)
			}
		}
	case []any:
		first, _ := s["prefixItems"].([]any)
		for i, item := range v {
			if i < len(first) {
				v[i] = n.convert(first[i], item)
			} else if rest, ok := s["items"]; ok {
				v[i] = n.convert(rest, item)
			}
		}
	}
	return value
}

// maxReferences bounds how many references in a row are followed: a reference
// may lead to itself.
const maxReferences = 16

// resolve follows the local references of a schema. It returns nil if there is
// no such schema, or if it is not an object.
func (n *numbers) resolve(schema any) map[string]any {
	for range maxReferences {
		s, _ := schema.(map[string]any)
		reference, ok := s["$ref"].(string)
		if !ok {
			return s
		}
		pointer, ok := strings.CutPrefix(reference, "#")
		if !ok {
			return nil
		}
		schema = n.root
		for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
			if token == "" {
				continue
			}
			parent, _ := schema.(map[string]any)
			schema = parent[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
		}
	}
	return nil
}

// allowsType reports whether a schema's type is, or includes, one of some types.
func allowsType(schema map[string]any, types ...string) bool {
	switch t := schema["type"].(type) {
	case string:
		return slices.Contains(types, t)
	case []any:
		return slices.ContainsFunc(t, func(one any) bool { name, ok := one.(string); return ok && slices.Contains(types, name) })
	}
	return false
}

// parseNumber returns the JSON number that a string consists of, white space
// around it aside.
func parseNumber(text string) (json.Number, bool) {
	text = strings.TrimSpace(text)
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') || numberSizeError(text) != "" || !json.Valid([]byte(text)) {
		return "", false
	}
	return json.Number(text), true
}

// maxIntegerExponent is the largest exponent that integerDigits converts: no Go integer has
// as many digits.
const maxIntegerExponent = 40

// integerDigits returns the digits of an integer that is written with a fraction
// or an exponent, such as 10.0 or 1e1: a Go integer is not decoded from these. A
// number that no Go integer holds stays as it is.
func integerDigits(text string) (string, bool) {
	at := strings.IndexAny(text, "eE")
	if at < 0 && !strings.Contains(text, ".") {
		return "", false
	}
	if at >= 0 {
		if exponent, err := strconv.Atoi(text[at+1:]); err != nil || exponent > maxIntegerExponent {
			return "", false
		}
	}
	rational, ok := new(big.Rat).SetString(text)
	if !ok || !rational.IsInt() {
		return "", false
	}
	return rational.Num().String(), true
}

// The limits of a number. A double has at most 309 digits before its point and
// an exponent of at least -324; the validator computes with exact fractions,
// whose cost grows with the square of these.
const (
	maxNumberLength = 1000 // characters
	maxExponent     = 1000
)

// numberSizeError returns what is wrong with the size of a JSON number, or the
// empty text.
func numberSizeError(text string) string {
	if len(text) > maxNumberLength {
		return fmt.Sprintf("a number of %d characters: write it with at most %d", len(text), maxNumberLength)
	}
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		if exponent, err := strconv.Atoi(text[at+1:]); err != nil || exponent > maxExponent || exponent < -maxExponent {
			return fmt.Sprintf("the number %s: its exponent is not between -%d and %d", text, maxExponent, maxExponent)
		}
	}
	return ""
}

// checkNumberSizes returns a *ValidationError that is the sentinel if a number in a value
// is too large to compute with.
func checkNumberSizes(value any, sentinel error) error {
	if fault, found := oversizedNumber(value); found {
		return &ValidationError{Violations: []Violation{fault}, kind: sentinel}
	}
	return nil
}

// oversizedNumber returns the fault of one number in a value that is over the
// limits, and whether there is one.
func oversizedNumber(value any) (Violation, bool) {
	switch v := value.(type) {
	case json.Number:
		if detail := numberSizeError(string(v)); detail != "" {
			return Violation{Detail: detail}, true
		}
	case map[string]any:
		for key, member := range v {
			if fault, found := oversizedNumber(member); found {
				return fault.below(key), true
			}
		}
	case []any:
		for i, item := range v {
			if fault, found := oversizedNumber(item); found {
				return fault.below(strconv.Itoa(i)), true
			}
		}
	}
	return Violation{}, false
}

// below returns the fault as it is seen from the parent, where the value that
// it is in has the given key.
func (f Violation) below(key string) Violation {
	f.Path = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key) + f.Path
	return f
}

// ignored returns the keys that a codec drops from its input.
func ignored(codec any) []string {
	if lenient, ok := codec.(interface{ ignored() []string }); ok {
		return lenient.ignored()
	}
	return nil
}

// parseSchema parses a schema document. A number in it is bounded like one of
// an input.
func parseSchema(source json.RawMessage) (any, error) {
	document, err := validate.UnmarshalJSON(bytes.NewReader(source))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSchema, err)
	}
	if fault, found := oversizedNumber(document); found {
		return nil, fmt.Errorf("%w: %s", ErrBadSchema, fault)
	}
	return document, nil
}
