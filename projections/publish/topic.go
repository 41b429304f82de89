package publish

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrBadTopic says that a text names no topic.
var ErrBadTopic = errors.New("topic is not valid")

// A Topic says where at a target a record goes: text in which words in braces
// stand for what is known of the record, such as ledger.{category}.{kind}. The
// words are those of Placeholders. The zero Topic is not valid.
type Topic struct{ parts []string } // text and words in turn, beginning and ending with text

// Placeholders are the words that a topic may have in braces.
func Placeholders() []string {
	return []string{"category", "stream", "kind", "session", "agent", "tool"}
}

// none stands in a topic for what is not known of a record.
const unknownValue = "none"

// ParseTopic is the inverse of [Topic.String]. A text that is empty, has a brace
// without its other, or a word that is not known is an ErrBadTopic.
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
			return Topic{}, fmt.Errorf("%w: {%s} in %q is none of {%s}", ErrBadTopic, word, text, strings.Join(Placeholders(), "}, {"))
		}
		t.parts, rest = append(t.parts, word), behind
	}
}

// String returns the text that t was parsed from.
func (t Topic) String() string {
	return t.expand(func(word string) string { return "{" + word + "}" })
}

// Pattern returns t with the same text in place of each word: with an asterisk,
// the pattern that all its topics match where a dot ends a token.
func (t Topic) Pattern(each string) string {
	return t.expand(func(string) string { return each })
}

// IsZero reports whether t is no topic.
func (t Topic) IsZero() bool { return len(t.parts) == 0 }

// of returns where a record goes. Of what stands in it for a word only letters,
// digits, hyphens and underscores of ASCII are left, and underscores stand for
// the rest; none stands for what is not known.
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

func topicRune(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
		return r
	}
	return '_'
}

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
