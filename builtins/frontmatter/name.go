package frontmatter

import "fmt"

// maxName is the length limit of a name in bytes.
const maxName = 64

// CheckName returns nil if text can name an agent or a skill: a lower-case ASCII letter,
// then up to 63 lower-case letters, digits, underscores and hyphens. Otherwise it
// returns an ErrInvalid that quotes the text.
func CheckName(text string) error {
	valid := text != "" && len(text) <= maxName && lower(text[0])
	for i := 0; valid && i < len(text); i++ {
		c := text[i]
		valid = lower(c) || '0' <= c && c <= '9' || c == '_' || c == '-'
	}
	if valid {
		return nil
	}
	return fmt.Errorf("%w: the name %q is not a lower-case letter and up to %d lower-case letters, digits, _ and -: rename it", ErrInvalid, text, maxName-1)
}

// lower reports whether c is a lower-case ASCII letter.
func lower(c byte) bool { return 'a' <= c && c <= 'z' }
