package domain

import "fmt"

// A CallID is the provider's own name for a call, stored unchanged. A provider
// may repeat it in another message of the same session.
type CallID string

// An AgentID names an agent, such as build or reviewer.
type AgentID string

// A Name is the name under which a model calls a tool: an ASCII letter, then
// up to 63 letters, digits, underscores and hyphens. [ParseName] checks one.
type Name string

// maxName is the length limit of a Name in bytes.
const maxName = 64

// ParseName checks text against the grammar of names. It returns an ErrBadName
// that quotes the text.
func ParseName(text string) (Name, error) {
	if text == "" || len(text) > maxName || !letter(text[0]) {
		return "", badName(text)
	}
	for i := range len(text) {
		if c := text[i]; !letter(c) && (c < '0' || c > '9') && c != '_' && c != '-' {
			return "", badName(text)
		}
	}
	return Name(text), nil
}

// letter reports whether c is an ASCII letter.
func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// A badName is an invalid name. It matches ErrBadName.
type badName string

// Error quotes the text and describes a valid name.
func (b badName) Error() string {
	return fmt.Sprintf("Invalid tool name: %q is not a letter and up to %d letters, digits, _ and -", string(b), maxName-1)
}

// Is reports whether target is ErrBadName.
func (b badName) Is(target error) bool { return target == ErrBadName }
