package transcripts

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// A line over the limit is refused with its number, and the next line is read.
func TestALineOverTheLimitIsRefusedAndTheNextIsRead(t *testing.T) {
	t.Parallel()
	data := `{"type":"user","message":"` + strings.Repeat("x", 200_000) + `"}` + "\n" + `{"type":"user","message":"hi"}` + "\n"
	f := newSessionFile("x", claudeCode)
	read, err := readLines(f, newLineScanner(strings.NewReader(data), 100_000), f.readClaudeLine)
	if err != nil {
		t.Fatal(err)
	}
	r := read.Report
	if r.Records != 1 || len(r.RefusedLines) != 1 || r.RefusedLines[0] != (RefusedLine{1, "longer than 100000 bytes"}) {
		t.Errorf("report is %+v, want line 1 refused", r)
	}
}

// An error of the reader is returned with the file and the last line.
func TestAReadErrorSaysWhere(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk broke")
	r := io.MultiReader(strings.NewReader(`{"type":"user","message":"hi"}`+"\n"), iotest.ErrReader(broken))
	_, err := ReadClaudeCode("x.jsonl", r)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "read x.jsonl after line 1") {
		t.Errorf("ReadClaudeCode = %v, want the reader's error with the place", err)
	}
}
