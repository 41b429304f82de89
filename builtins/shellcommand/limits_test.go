package shellcommand

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestLongAndDeepLinesAreReadInTime(t *testing.T) {
	t.Parallel()
	n := maxLineBytes / 32
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		n = maxLineBytes / 8
	}
	for name, line := range map[string]string{
		"runners in runners": strings.Repeat("sudo ", n/5) + "x", "commands": strings.Repeat("a;", n/2), "different commands": manyCommands(n), "substitutions": strings.Repeat("$(", n/2), "closed substitutions": strings.Repeat("$(", n/3) + "x" + strings.Repeat(")", n/3),
		"subshells": strings.Repeat("(", n/3) + "x" + strings.Repeat(")", n/3), "backquotes": strings.Repeat("`", n), "words behind a variable": "$X " + strings.Repeat("a ", n/2-3), "quotes": strings.Repeat("'", n), "here-documents": strings.Repeat("<<E ", n/4), "too long": strings.Repeat("a ", maxLineBytes),
		"eval in eval": strings.Repeat("eval ", n/5) + "x", "shells in shells": strings.Repeat("sh -c 'a' ", n/10), "assignments": strings.Repeat("a=b ", n/4), "redirections": strings.Repeat(">a ", n/3), "braces": strings.Repeat("{", n), "nested expansions": strings.Repeat("${a:-", n/5), "arithmetic": "$((" + strings.Repeat("1+", n/2-5) + "1))", "closed nested expansions": strings.Repeat("${a:-", 500) + strings.Repeat("}", 500),
	} {
		started := time.Now()
		read := Analyze(line, "sh")
		if took := time.Since(started); took > time.Minute {
			t.Errorf("%s took %v", name, took)
		} else if testing.Verbose() {
			t.Logf("%s: %v, %d resources", name, took, len(read.Resources))
		}
		if size := len(strings.Join(read.Resources, "")); size > 2*maxResourceBytes {
			t.Errorf("%s is asked about as %d bytes", name, size)
		}
		if len(read.Resources) == 0 {
			t.Errorf("%s is asked about as nothing", name)
		}
	}
}

// manyCommands returns a line of n bytes at most with different commands.
func manyCommands(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n-10; i++ {
		b.WriteString(strings.Repeat("x", i%7+1))
		b.WriteByte(byte('a' + i%26))
		b.WriteByte(byte('a' + i/26%26))
		b.WriteByte(byte('a' + i/676%26))
		b.WriteByte(';')
	}
	return b.String()
}
