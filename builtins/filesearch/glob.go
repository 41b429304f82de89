package filesearch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// ErrBadPattern is the error of an invalid glob pattern.
var ErrBadPattern = errors.New("not a pattern")

// A Glob is a parsed glob pattern, relative to the searched directory. ParseGlob makes it.
// It may be used by several goroutines at once.
type Glob struct {
	text     string   // without a leading slash; **/ is added to a pattern without a slash
	dotParts []string // parts that begin with a dot, and can match a dot file
}

// The limits of a pattern.
const (
	// maxPatternBytes is the maximum length of a glob pattern or a regular expression, in
	// bytes.
	maxPatternBytes = 4096
	// maxAlternatives is the maximum number of patterns that the braces of one pattern
	// expand to.
	maxAlternatives = 256
)

// ParseGlob parses a glob pattern. It returns an ErrBadPattern that states the reason
// for a pattern that is too long, negated, contains "..", has unbalanced brackets or
// expands to too many alternatives.
func ParseGlob(text string) (Glob, error) {
	switch {
	case len(text) > maxPatternBytes:
		return Glob{}, fmt.Errorf("%w: it has %d bytes: use at most %d", ErrBadPattern, len(text), maxPatternBytes)
	case strings.HasPrefix(text, "!"):
		return Glob{}, fmt.Errorf("%w: it begins with !, and a pattern cannot exclude", ErrBadPattern)
	case slices.Contains(strings.Split(text, "/"), ".."):
		return Glob{}, fmt.Errorf("%w: .. does not lead out of the directory that is searched: give path", ErrBadPattern)
	case countAlternatives(text) > maxAlternatives:
		return Glob{}, fmt.Errorf("%w: its braces stand for over %d patterns: use fewer alternatives", ErrBadPattern, maxAlternatives)
	case !doublestar.ValidatePattern(text):
		return Glob{}, fmt.Errorf("%w: its [ ] or { } are not in pairs, or it ends in a backslash", ErrBadPattern)
	}
	text = strings.TrimPrefix(text, "./")
	if !strings.Contains(text, "/") {
		text = "**/" + text
	}
	p := Glob{text: strings.TrimPrefix(text, "/")}
	for _, part := range splitPattern(p.text) {
		if part[0] == '.' || strings.HasPrefix(part, `\.`) || strings.HasPrefix(part, "{") && strings.Contains(part, ".") {
			p.dotParts = append(p.dotParts, part)
		}
	}
	return p, nil
}

// countAlternatives returns the number of patterns without braces that a pattern
// expands to. Above maxAlternatives it stops and returns a number over that limit. Each
// of these patterns is matched separately against each file.
func countAlternatives(text string) int {
	type group struct{ before, sum int } // numbers of patterns: of the text before the braces, and of the alternatives so far
	var open []group
	now := 1
	for i := 0; i < len(text) && now <= maxAlternatives; i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			open = append(open, group{before: now})
			now = 1
		case ',':
			if n := len(open); n > 0 {
				open[n-1].sum += now
				now = 1
			}
		case '}':
			if n := len(open); n > 0 {
				now = open[n-1].before * (open[n-1].sum + now)
				open = open[:n-1]
			}
		}
	}
	for _, g := range open { // unclosed braces, or counting stopped at the limit
		now = max(now, g.before, g.sum)
	}
	return now
}

// MatchesWithDots reports whether a path matches. Wildcards match a leading dot.
func (p Glob) MatchesWithDots(name string) bool { return doublestar.MatchUnvalidated(p.text, name) }

// Matches reports whether a path matches. A wildcard does not match the leading dot of an
// element of the path.
func (p Glob) Matches(name string) bool { return p.MatchesWithDots(name) && p.matchesDotNames(name) }

// matchesDotNames reports whether every hidden element of a path, one with a leading
// dot, matches an element of the pattern that begins with a literal dot.
func (p Glob) matchesDotNames(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part[0] == '.' && !slices.ContainsFunc(p.dotParts, func(q string) bool { return doublestar.MatchUnvalidated(q, part) }) {
			return false
		}
	}
	return true
}

// splitPattern splits a pattern at the slashes outside braces and returns the parts that
// are not empty.
func splitPattern(text string) []string {
	depth := 0
	return strings.FieldsFunc(text, func(r rune) bool {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		}
		return r == '/' && depth == 0
	})
}
