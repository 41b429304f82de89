package domain

import (
	"fmt"
	"strings"
)

// words are the texts of a closed set of constants, by their values. The first
// is that of the zero value and is empty.
type enumNames[T ~uint8] []string

func (n enumNames[T]) name(v T) string {
	if int(v) >= len(n) {
		return fmt.Sprintf("?%d", uint8(v))
	}
	return n[v]
}

// marshal is the word of v, to be written. It refuses a value that parse would not
// give.
func (n enumNames[T]) marshal(v T) ([]byte, error) {
	if int(v) >= len(n) {
		return nil, fmt.Errorf("write %s: %w: %s", n.name(v), ErrBadWord, strings.Join(n[1:], ", "))
	}
	return []byte(n[v]), nil
}

func (n enumNames[T]) unmarshal(v *T, text []byte) error {
	for i, word := range n {
		if word == string(text) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("parse %q: %w: %s", text, ErrBadWord, strings.Join(n[1:], ", "))
}
