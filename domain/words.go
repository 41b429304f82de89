package domain

import (
	"fmt"
	"strings"
)

// words are the texts of a closed set of constants, by their values. The first
// is that of the zero value and is empty.
type words[T ~uint8] []string

func (w words[T]) word(v T) string {
	if int(v) >= len(w) {
		return fmt.Sprintf("?%d", uint8(v))
	}
	return w[v]
}

// text is the word of v, to be written. It refuses a value that parse would not
// give.
func (w words[T]) text(v T) ([]byte, error) {
	if int(v) >= len(w) {
		return nil, fmt.Errorf("write %s: %w: %s", w.word(v), ErrBadWord, strings.Join(w[1:], ", "))
	}
	return []byte(w[v]), nil
}

func (w words[T]) parse(v *T, text []byte) error {
	for i, word := range w {
		if word == string(text) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("parse %q: %w: %s", text, ErrBadWord, strings.Join(w[1:], ", "))
}
