package shellcommand

import (
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// A shellWord is one word of a command.
type shellWord struct {
	text    string // as a rule sees it
	value   string // meaning of a literal word
	literal bool   // it contains no expansion of a variable or command
	expands bool   // it is literal, and the shell may replace it by other words
}

// plain reports whether the word always means exactly its value.
func (w shellWord) plain() bool { return w.literal && !w.expands }

// wordTexts returns the text of each word.
func wordTexts(words []shellWord) []string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
	}
	return texts
}

// readWords reads each word of a command.
func (v *walker) readWords(args []*syntax.Word) []shellWord {
	words := make([]shellWord, len(args))
	for i, arg := range args {
		words[i] = v.readWord(arg)
	}
	return words
}

// readWord reads a word. It removes redundant quotes, so that a rule sees the same text however
// the word is quoted.
func (v *walker) readWord(w *syntax.Word) shellWord {
	read, quoted, ok := literalWord(w.Parts)
	if !ok {
		return shellWord{text: v.print(w)}
	}
	read.text, read.literal = read.value, true
	if quoted {
		read.text = quote(read.value)
	}
	return read
}

// quote returns text that a shell reads as one word with the given value. The result
// does not depend on the language of the parser.
func quote(value string) string {
	harmless := func(r rune) bool {
		return r >= utf8.RuneSelf || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)
	}
	if value != "" && !strings.ContainsFunc(value, func(r rune) bool { return !harmless(r) }) {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

// literalWord joins the parts of a word and returns it with its value: the text without
// the quotes. quoted is true if a part is quoted. ok is false if a part is not literal,
// such as an expansion.
func literalWord(parts []syntax.WordPart) (w shellWord, quoted, ok bool) {
	var b, bare strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			text, escaped := unescape(part.Value, func(byte) bool { return true })
			b.WriteString(text)
			bare.WriteString(part.Value)
			quoted = quoted || escaped
		case *syntax.SglQuoted:
			if part.Dollar {
				return shellWord{}, false, false
			}
			b.WriteString(part.Value)
			quoted = true
		case *syntax.DblQuoted:
			text, ok := doubleQuoted(part)
			if !ok {
				return shellWord{}, false, false
			}
			b.WriteString(text)
			quoted = true
		default:
			return shellWord{}, false, false
		}
	}
	return shellWord{value: b.String(), expands: expands(bare.String())}, quoted, true
}

// expands reports whether a shell may replace an unquoted literal with file names, with
// several words, or with a directory.
func expands(lit string) bool {
	return strings.ContainsAny(lit, "*?[") && lit != "[" && lit != "[[" || strings.HasPrefix(lit, "~") ||
		strings.Contains(lit, "{") && (strings.Contains(lit, ",") || strings.Contains(lit, ".."))
}

// doubleQuoted returns the value of a text in double quotes. It returns false if the
// text contains an expansion.
func doubleQuoted(q *syntax.DblQuoted) (string, bool) {
	var b strings.Builder
	for _, part := range q.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok || q.Dollar {
			return "", false
		}
		text, _ := unescape(lit.Value, func(c byte) bool { return strings.IndexByte("$`\"\\\n", c) >= 0 })
		b.WriteString(text)
	}
	return b.String(), true
}

// unescape removes each backslash that quotes the byte after it; quotes decides which
// bytes a backslash quotes. If that byte is a line feed, unescape removes it too.
// unescape returns true if it removed a backslash.
func unescape(text string, quotes func(byte) bool) (string, bool) {
	var b strings.Builder
	escaped := false
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && quotes(text[i+1]) {
			escaped = true
			if i++; text[i] == '\n' {
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String(), escaped
}
