package publish

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrBadTopic reports an invalid topic.
var ErrBadTopic = errors.New("topic is not valid")

// A Topic is a template of the topics of records, such as ledger.{category}.{kind}.
// [Placeholders] lists the names allowed in braces. The zero Topic is invalid. parts
// has text and placeholders in turn, and begins and ends with text, which may be
// empty.
type Topic struct{ parts []string }

// Placeholders returns the names that a topic may have in braces.
func Placeholders() []string {
	return []string{"category", "stream", "kind", "session", "agent", "tool"}
}

// unknownValue replaces a placeholder for which the record has no value.
const unknownValue = "none"

// ParseTopic is the inverse of [Topic.String]. An empty text, an unbalanced
// brace and an unknown placeholder are an ErrBadTopic.
func ParseTopic(text string) (Topic, error) {
	if text == "" {
		return Topic{}, fmt.Errorf("%w: it is empty", ErrBadTopic)
	}
	t := Topic{}
	for rest := text; ; {
		before, after, more := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return Topic{}, fmt.Errorf("%w: %q closes a brace that it does not open", ErrBadTopic, text)
		}
		if t.parts = append(t.parts, before); !more {
			return t, nil
		}
		word, behind, closed := strings.Cut(after, "}")
		if !closed {
			return Topic{}, fmt.Errorf("%w: %q opens a brace that it does not close", ErrBadTopic, text)
		}
		if !slices.Contains(Placeholders(), word) {
			return Topic{}, fmt.Errorf("%w: {%s} in %q is not one of {%s}", ErrBadTopic, word, text, strings.Join(Placeholders(), "}, {"))
		}
		t.parts, rest = append(t.parts, word), behind
	}
}

// String returns the text that t was parsed from.
func (t Topic) String() string {
	return t.expand(func(word string) string { return "{" + word + "}" })
}

// Pattern returns t with each placeholder replaced by the same text. With "*"
// it is a pattern of all topics of t, if dots separate tokens.
func (t Topic) Pattern(each string) string {
	return t.expand(func(string) string { return each })
}

// IsZero reports whether t is the zero Topic.
func (t Topic) IsZero() bool { return len(t.parts) == 0 }

// of returns the topic of a record. In a value it replaces each character other than
// an ASCII letter, digit, hyphen or underscore with an underscore. It replaces a
// missing value with unknownValue.
func (t Topic) of(p attributes) string {
	return t.expand(func(word string) string {
		value := map[string]string{
			"category": p.stream.Category(), "stream": string(p.stream), "kind": p.kind,
			"session": p.session, "agent": p.agent, "tool": p.tool,
		}[word]
		if value == "" {
			return unknownValue
		}
		return strings.Map(topicRune, value)
	})
}

// topicRune returns r if a topic may have it in a value, and otherwise '_'.
func topicRune(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
		return r
	}
	return '_'
}

// expand returns the template with the result of word for each placeholder.
func (t Topic) expand(word func(string) string) string {
	var b strings.Builder
	for i, part := range t.parts {
		if i%2 == 1 {
			part = word(part)
		}
		b.WriteString(part)
	}
	return b.String()
}
