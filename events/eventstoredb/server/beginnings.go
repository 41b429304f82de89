package server

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// mostTexts is how many texts an expression may stand for.
const mostTexts = 64

// beginnings returns texts with one of which everything begins that an
// expression matches, and whether each match is one of them from end to end. It
// returns none if that is not clear from the expression.
func beginnings(of *regexp.Regexp) (texts []string, whole bool) {
	parsed, err := syntax.Parse(of.String(), syntax.Perl)
	if err != nil {
		return nil, false
	}
	t := spell(parsed)
	if !t.begun {
		return nil, false
	}
	return t.all, t.exact && t.ended
}

// Texts are what a part of an expression matches, or how that begins.
type texts struct {
	all   []string
	exact bool // they are all that is matched, and not how it begins
	begun bool // only at the beginning of what is looked at
	ended bool // only at its end
}

// anything is what nothing is known of.
var anything = texts{all: []string{""}}

// spell reads a part of an expression. The replacement character matches all
// that is not UTF-8, and is no text.
func spell(of *syntax.Regexp) texts {
	switch of.Op {
	case syntax.OpLiteral:
		if of.Flags&syntax.FoldCase == 0 && !slices.Contains(of.Rune, utf8.RuneError) {
			return texts{all: []string{string(of.Rune)}, exact: true}
		}
	case syntax.OpEmptyMatch:
		return texts{all: []string{""}, exact: true}
	case syntax.OpBeginText:
		return texts{all: []string{""}, exact: true, begun: true}
	case syntax.OpEndText:
		return texts{all: []string{""}, exact: true, ended: true}
	case syntax.OpCapture:
		return spell(of.Sub[0])
	case syntax.OpCharClass:
		return class(of.Rune)
	case syntax.OpQuest:
		return either([]*syntax.Regexp{of.Sub[0], {Op: syntax.OpEmptyMatch}})
	case syntax.OpAlternate:
		return either(of.Sub)
	case syntax.OpConcat:
		return sequence(of.Sub)
	}
	return anything
}

// class returns the characters of a class, which is given by its ranges.
func class(ranges []rune) texts {
	t := texts{exact: true}
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			if len(t.all) == mostTexts || r == utf8.RuneError {
				return anything
			}
			t.all = append(t.all, string(r))
		}
	}
	return t
}

func either(of []*syntax.Regexp) texts {
	t := texts{exact: true, begun: true, ended: true}
	for _, one := range of {
		next := spell(one)
		t.all = append(t.all, next.all...)
		t.exact, t.begun, t.ended = t.exact && next.exact, t.begun && next.begun, t.ended && next.ended
	}
	if len(t.all) > mostTexts {
		return anything
	}
	return t
}

// sequence returns what parts match one behind the other. What stands behind a
// part that is not exact adds nothing.
func sequence(of []*syntax.Regexp) texts {
	t := texts{all: []string{""}, exact: true}
	for i, one := range of {
		next := spell(one)
		if len(t.all)*len(next.all) > mostTexts {
			t.exact, t.ended = false, false
			return t
		}
		var all []string
		for _, head := range t.all {
			for _, tail := range next.all {
				all = append(all, head+tail)
			}
		}
		t = texts{all: all, exact: next.exact, begun: t.begun || i == 0 && next.begun, ended: next.ended}
		if !t.exact {
			return t
		}
	}
	return t
}
