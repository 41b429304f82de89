package lsp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"unicode/utf8"
)

// FuzzReadFrame checks that any input is messages, an invalid message or the end of the
// input, and that a message survives its frame.
func FuzzReadFrame(f *testing.F) {
	for _, seed := range []string{
		"Content-Length: 2\r\n\r\n{}", "content-length:2\n\n{}", "Content-Type: x\r\nContent-Length: 3\r\n\r\n[1]Content-Length: 1\r\n\r\n1",
		"Content-Length: 99999999999999999999\r\n\r\n", "Content-Length: -1\r\n\r\n", "\r\n\r\n", "Content-Length: 5\r\n\r\n{", ":", "x",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for r := bufio.NewReader(bytes.NewReader(data)); ; {
			if _, err := readFrame(r); errors.Is(err, errBadMessage) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				break
			} else if err != nil {
				t.Fatalf("readFrame = %v", err)
			}
		}
		if len(data) == 0 {
			return
		}
		framed := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(data), data)
		if got, err := readFrame(bufio.NewReader(bytes.NewReader([]byte(framed)))); err != nil || !bytes.Equal(got, data) {
			t.Errorf("readFrame of a frame of %q = %q, %v", data, got, err)
		}
	})
}

// FuzzPosition checks that each character of a line survives its conversion to the units of
// a server and back.
func FuzzPosition(f *testing.F) {
	for _, seed := range []string{"", "a", "é𝄞x", "\t日本", "\xff\xfe", "🇨🇭\u0301"} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, line string, offset int) {
		for _, e := range []positionEncoding{utf8Units, utf16Units, utf32Units} {
			length := utf8.RuneCountInString(line)
			for character := 1; character <= length+1; character++ {
				if got := e.character(line, e.offset(line, character)); got != character {
					t.Fatalf("character %d of %q is %d after %s", character, line, got, e)
				}
			}
			if got := e.character(line, offset); got < 1 || got > length+1 {
				t.Fatalf("character(%q, %d) = %d", line, offset, got)
			}
		}
	})
}
