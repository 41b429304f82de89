package filesearch

import (
	"errors"
	"strings"
	"testing"
)

func TestPatternWithManyAlternativesIsRefused(t *testing.T) {
	t.Parallel()
	nested := "a"
	for range 300 {
		nested = "{" + nested + ",b}"
	}
	for _, pattern := range []string{strings.Repeat("{a,b}", 30), strings.Repeat("{a,{b,c}}", 20), nested, strings.Repeat("{,a}", 40) + "b", strings.Repeat("{a,b}{c", 10) + strings.Repeat("}", 10)} {
		if _, err := ParseGlob(pattern); !errors.Is(err, ErrBadPattern) || !strings.Contains(err.Error(), "its braces stand for over 256 patterns") {
			t.Errorf("ParseGlob(%.40q) = %v, want an error about its braces", pattern, err)
		}
	}
	for pattern, want := range map[string]int{"a": 1, "{a,b}": 2, "{a,b}{c,d}": 4, "{a,{b,c}}x": 3, `\{a,b\}`: 1, "a,b": 1, "{a{1,2},b}{3,4}": 6, "{}": 1} {
		if got := countAlternatives(pattern); got != want {
			t.Errorf("alternatives(%q) = %d, want %d", pattern, got, want)
		}
	}
}

func TestPatternThatCannotMatchSaysWhy(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		strings.Repeat("*", 5000): "it has 5000 bytes", "!a": "a pattern cannot exclude", "a/../b": ".. does not lead out", "[a": "not in pairs", "{": "not in pairs", `a\`: "ends in a backslash",
	} {
		if _, err := ParseGlob(pattern); !errors.Is(err, ErrBadPattern) || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseGlob(%.40q) = %v, want an error with %q", pattern, err, want)
		}
	}
}

func TestWildcardMatchesADotOnlyWithDots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name     string
		matches, withDots bool
	}{
		{"*.go", "a.go", true, true}, {"*.go", "src/a.go", true, true}, {"/*.go", "src/a.go", false, false}, {"./*.go", "src/a.go", true, true},
		{"*", ".hidden", false, true}, {".*", ".hidden", true, true}, {"**/a", ".config/a", false, true}, {".config/*", ".config/a", true, true},
		{".config/*", ".config/.a", false, true}, {"{.a,b}", ".a", true, true}, {`\.a`, ".a", true, true}, {"src/**", "src/deep/a", true, true}, {"*.txt", "a.go", false, false},
		{"**/**/**/**/**/**/b", strings.Repeat("a", 40), false, false}, {strings.Repeat("*a", 30) + "b", strings.Repeat("a", 40), false, false},
	} {
		p, err := ParseGlob(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got, dots := p.Matches(c.name), p.MatchesWithDots(c.name); got != c.matches || dots != c.withDots {
			t.Errorf("%s matches %s: %v, with dots %v, want %v and %v", c.pattern, c.name, got, dots, c.matches, c.withDots)
		}
	}
}
