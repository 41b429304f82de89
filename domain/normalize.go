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

// Ignoring returns a codec that drops the given top-level keys from an input before the
// tool checks it, for keys that models send out of habit. The schema does not mention
// these keys. Other unknown keys stay violations.
func Ignoring[T any](c Codec[T], keys ...string) Codec[T] { return ignoringCodec[T]{c, keys} }

// An ignoringCodec is the codec of Ignoring.
type ignoringCodec[T any] struct {
	Codec[T]
	keys []string
}

// schemaError returns the schema error of the wrapped codec, or nil.
func (c ignoringCodec[T]) schemaError() error {
	if broken, ok := c.Codec.(interface{ schemaError() error }); ok {
		return broken.schemaError()
	}
	return nil
}

// ignored returns the keys that the codec drops.
func (c ignoringCodec[T]) ignored() []string { return c.keys }

// accept validates an input and returns the document to decode. It drops the
// ignored keys, replaces a string by the number in it where the schema requires
// a number, and rewrites an integer that has a fraction or an exponent. If it
// changes no part, it returns raw itself. An invalid input is a
// *ValidationError that matches ErrInvalidInput.
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

// A numbers walks a schema and a value together and converts numbers in the
// value.
type numbers struct {
	root    any // the whole schema document, for local references
	changed bool
}

// convert returns a value in which a string that holds a number becomes that number
// wherever the schema allows a number and no string. It follows properties, items and
// local references. It leaves a part unchanged if only a combination of schemas, such
// as anyOf, describes it.
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

// maxReferences bounds a chain of references, which may be a cycle.
const maxReferences = 16

// resolve follows the local references of a schema. It returns nil if the
// target is missing or not an object.
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

// allowsType reports whether the type of a schema is or includes one of the
// given types.
func allowsType(schema map[string]any, types ...string) bool {
	switch t := schema["type"].(type) {
	case string:
		return slices.Contains(types, t)
	case []any:
		return slices.ContainsFunc(t, func(one any) bool { name, ok := one.(string); return ok && slices.Contains(types, name) })
	}
	return false
}

// parseNumber returns the JSON number in a string, without surrounding white space. It
// returns false if the string holds no number.
func parseNumber(text string) (json.Number, bool) {
	text = strings.TrimSpace(text)
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') || numberSizeError(text) != "" || !json.Valid([]byte(text)) {
		return "", false
	}
	return json.Number(text), true
}

// maxIntegerExponent is the largest exponent that integerDigits converts. No
// Go integer has more digits.
const maxIntegerExponent = 40

// integerDigits returns the decimal digits of an integer written with a
// fraction or an exponent, such as 10.0 or 1e1, because encoding/json does not
// decode that into a Go integer. It returns false for any other text.
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

// The limits of a number. A double has at most 309 digits before its point and an
// exponent of at least -324. Larger numbers are rejected, because the validator
// computes with exact fractions at a cost that grows with the square of the digits and
// the exponent.
const (
	maxNumberLength = 1000 // characters
	maxExponent     = 1000
)

// numberSizeError returns the reason why a JSON number exceeds the limits, or
// the empty text.
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

// checkNumberSizes returns a *ValidationError that matches the sentinel if a
// number in a value exceeds the limits.
func checkNumberSizes(value any, sentinel error) error {
	if fault, found := oversizedNumber(value); found {
		return &ValidationError{Violations: []Violation{fault}, kind: sentinel}
	}
	return nil
}

// oversizedNumber returns a violation for one number in a value that exceeds the
// limits. It returns false if no number does.
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

// below returns the violation with key prepended to its path: a path in a member
// becomes a path in the object that contains the member.
func (f Violation) below(key string) Violation {
	f.Path = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key) + f.Path
	return f
}

// ignored returns the keys that a codec of Ignoring drops, and nil for any
// other codec.
func ignored(codec any) []string {
	if lenient, ok := codec.(interface{ ignored() []string }); ok {
		return lenient.ignored()
	}
	return nil
}

// parseSchema decodes a schema document. It rejects numbers over the limits, as in an
// input.
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
