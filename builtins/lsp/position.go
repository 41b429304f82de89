package lsp

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
)

// A positionEncoding is the code unit in which a server counts the characters of a line.
type positionEncoding string

// The position encodings of the protocol. A server that names no encoding uses UTF-16.
const (
	utf8Units  positionEncoding = "utf-8"
	utf16Units positionEncoding = "utf-16"
	utf32Units positionEncoding = "utf-32"
)

// units returns the number of code units of a character that has the given size in UTF-8.
func (e positionEncoding) units(char rune, size int) int {
	switch {
	case e == utf8Units:
		return size
	case e == utf16Units && char > 0xffff:
		return 2
	}
	return 1
}

// offset returns the code units before a character of a line. character counts Unicode
// characters from 1. A character after the end of the line is its end.
func (e positionEncoding) offset(line string, character int) int {
	total := 0
	for at := 0; at < len(line) && character > 1; character-- {
		char, size := utf8.DecodeRuneInString(line[at:])
		total += e.units(char, size)
		at += size
	}
	return total
}

// character is the inverse of offset. An offset inside a character gives that character.
// An offset after the end of the line gives the end of the line.
func (e positionEncoding) character(line string, offset int) int {
	character := 1
	for at := 0; at < len(line); character++ {
		char, size := utf8.DecodeRuneInString(line[at:])
		if offset -= e.units(char, size); offset < 0 {
			break
		}
		at += size
	}
	return character
}

// A sourceText is a file as lines without their line ends.
type sourceText []string

// parseSource splits a file at LF and removes a CR at the end of a line.
func parseSource(content string) sourceText {
	lines := strings.Split(content, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSuffix(line, "\r")
	}
	return lines
}

// position returns the protocol position of a line and a character, both from 1. It
// returns a failure that names the range if the file has no such position.
func (t sourceText) position(name string, line, character int, e positionEncoding) (protocolPosition, error) {
	if line < 1 || line > len(t) {
		return protocolPosition{}, domain.Fail("%s has %d lines: line %d does not exist", name, len(t), line)
	}
	text := t[line-1]
	if length := utf8.RuneCountInString(text); character < 1 || character > length+1 {
		return protocolPosition{}, domain.Fail("line %d of %s has %d characters: character %d does not exist", line, name, length, character)
	}
	return protocolPosition{line - 1, e.offset(text, character)}, nil
}

// A textPosition is a line and a character as the model counts them: from 1, in Unicode
// characters.
type textPosition struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

// String returns LINE:CHARACTER.
func (p textPosition) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Character) }

// locate returns the textPosition of a protocol position. In a file whose content was not
// read, one code unit counts as one character.
func (t sourceText) locate(p protocolPosition, e positionEncoding) textPosition {
	p.Line, p.Character = max(p.Line, 0), max(p.Character, 0)
	if p.Line >= len(t) {
		return textPosition{p.Line + 1, p.Character + 1}
	}
	return textPosition{p.Line + 1, e.character(t[p.Line], p.Character)}
}

// line returns the text of a line from 1 without surrounding space, or an empty text.
func (t sourceText) line(number int) string {
	if number < 1 || number > len(t) {
		return ""
	}
	return strings.TrimSpace(t[number-1])
}
