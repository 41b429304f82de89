package filesearch

import (
	"strings"
	"testing"
)

// mustCompile returns the expression of a text.
func mustCompile(t testing.TB, text string) Expression {
	t.Helper()
	e, err := CompileExpression(text)
	if err != nil {
		t.Fatalf("CompileExpression(%.40q) = %v", text, err)
	}
	return e
}

// A search checks its context after a bounded number of steps, for every expression
// and line. The number of steps is the number of instructions of the expression times
// the bytes that each match can skip.
func TestStepsBetweenTwoLooksAtTheContextAreBounded(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"a", "a{0,900}b", "(a{0,30}){0,30}b", "a*a*a*a*b", "[^b]*c|a", "(?:[a-z]{0,900}c|a)", strings.Repeat("[a-z]{0,1000}", 9)} {
		e := mustCompile(t, pattern)
		size := e.windowSize() + overlap
		if steps := size * e.size * e.maxSubmatches(size); steps > 2*max(maxSteps, (minWindow+overlap)*maxInstruction) {
			t.Errorf("a search for %.40q makes %d steps between two looks", pattern, steps)
		}
	}
}

func TestExpressionOverTheLimitsIsRefused(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		strings.Repeat("[a-z]{0,1000}", 30): "the expression is too large",
		strings.Repeat("a", 5000):           "the expression has 5000 bytes",
		"a(":                                "missing closing )",
	} {
		if _, err := CompileExpression(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CompileExpression(%.40q) = %v, want an error with %q", pattern, err, want)
		}
	}
}

func TestLiteralIsInEveryMatch(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"needle": "needle", "(?i)needle": "", "a(bcd)+e": "bcd", "foo|bar": "", "foobar|foobaz": "fooba", "x*abc?": "ab", "a.bc": "bc", `\bword\b`: "word", "a\nb": "",
	} {
		if got := mustCompile(t, expression).Literal(); got != want {
			t.Errorf("the literal of %q is %q, want %q", expression, got, want)
		}
	}
}
