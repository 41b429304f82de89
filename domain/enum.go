package domain

import (
	"fmt"
	"strings"
)

// An enumNames holds the names of a closed set of constants, indexed by value.
// The name of the zero value is empty. Events and the CLI write these names, so
// they do not change.
type enumNames[T ~uint8] []string

// name returns the name of v, or "?" and the number of a value outside the
// set.
func (n enumNames[T]) name(v T) string {
	if int(v) >= len(n) {
		return fmt.Sprintf("?%d", uint8(v))
	}
	return n[v]
}

// marshal returns the name of v. For a value outside the set it returns an ErrBadWord,
// because unmarshal could not read the name back.
func (n enumNames[T]) marshal(v T) ([]byte, error) {
	if int(v) >= len(n) {
		return nil, fmt.Errorf("write %s: %w: %s", n.name(v), ErrBadWord, strings.Join(n[1:], ", "))
	}
	return []byte(n[v]), nil
}

// unmarshal sets v to the value whose name is text. If no value has this name, it
// leaves v unchanged and returns an ErrBadWord that lists the names.
func (n enumNames[T]) unmarshal(v *T, text []byte) error {
	for i, word := range n {
		if word == string(text) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("parse %q: %w: %s", text, ErrBadWord, strings.Join(n[1:], ", "))
}
