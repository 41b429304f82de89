package where

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An Error is a fault of a condition.
type Error struct {
	Column  int // of the fault, in characters from 1
	Message string
	// Names are the names that may be meant, the most similar first; nil: the fault is not
	// about a name.
	Names []string
}

// Error returns the column and the message.
func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Message) }

// The kinds of tokens.
const (
	wordToken   = "word"
	quotedToken = "text"
	signToken   = "sign" // a comparison or a parenthesis
	endToken    = "end"
)

// A token is a part of a condition.
type token struct {
	kind   string
	text   string // of a quoted text without its quotes and escapes
	column int
}

// is reports whether the token is a keyword, in any case.
func (t token) is(keyword string) bool {
	return t.kind == wordToken && strings.EqualFold(t.text, keyword)
}

// shown returns the token as an error text names it.
func (t token) shown() string {
	if t.kind == endToken {
		return "the end"
	}
	return fmt.Sprintf("%q", t.text)
}

// signs are the comparisons and the parentheses, each before its beginnings.
var signs = []string{"!=", "<=", ">=", "=", "<", ">", "~", "(", ")"}

// stops are the characters that end a word, besides spaces.
const stops = `()=!<>~,"'`

// lex splits a condition into tokens. The last one is the end.
func lex(text string) ([]token, error) {
	if len(text) > MaxBytes {
		return nil, &Error{Column: 1, Message: fmt.Sprintf("the condition has %d bytes, and at most %d are allowed", len(text), MaxBytes)}
	}
	var all []token
	column := 1
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1, r == 0:
			return nil, &Error{Column: column, Message: "the character is not valid text"}
		case unicode.IsSpace(r):
			text, column = text[size:], column+1
			continue
		}
		t, rest, err := next(text, column)
		if err != nil {
			return nil, err
		}
		column += utf8.RuneCountInString(text[:len(text)-len(rest)])
		all, text = append(all, t), rest
	}
	return append(all, token{kind: endToken, column: column}), nil
}

// next returns the token at the beginning of a text and the rest. The text begins with a
// character that is no space.
func next(text string, column int) (token, string, error) {
	for _, sign := range signs {
		if rest, ok := strings.CutPrefix(text, sign); ok {
			return token{signToken, sign, column}, rest, nil
		}
	}
	switch text[0] {
	case '"', '\'':
		return quoted(text, column)
	case '!', ',':
		return token{}, "", &Error{Column: column, Message: fmt.Sprintf("%q has no meaning here: the comparisons are = != < <= > >= ~, joined by and, or, not", text[:1])}
	}
	end := strings.IndexFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune(stops, r) || r == 0 || r == utf8.RuneError
	})
	if end < 0 {
		end = len(text)
	}
	if end == 0 { // U+FFFD itself, which is valid
		end = utf8.RuneLen(utf8.RuneError)
	}
	return token{wordToken, text[:end], column}, text[end:], nil
}

// quoted returns the quoted text at the beginning of a text, and the rest.
func quoted(text string, column int) (token, string, error) {
	quote := rune(text[0])
	var b strings.Builder
	escaped := false
	at := column
	for i, r := range text[1:] {
		at++
		switch {
		case r == 0, r == utf8.RuneError && !strings.HasPrefix(text[1+i:], string(utf8.RuneError)):
			return token{}, "", &Error{Column: at, Message: "the character is not valid text"}
		case escaped:
			escaped = false
			switch r {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case '"', '\'':
				b.WriteRune(r)
			case '\\':
				b.WriteString(`\\`)
			default:
				b.WriteString(`\` + string(r))
			}
		case r == '\\':
			escaped = true
		case r == quote:
			return token{quotedToken, b.String(), column}, text[1+i+1:], nil
		default:
			b.WriteRune(r)
		}
	}
	return token{}, "", &Error{Column: column, Message: fmt.Sprintf("the text has no closing %c", quote)}
}
