package server

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// mostTexts is how many texts an expression may stand for.
const maxLiterals = 64

// regexPrefixes returns texts with one of which everything begins that an
// expression matches, and whether each match is one of them from end to end. It
// returns none if that is not clear from the expression.
func regexPrefixes(re *regexp.Regexp) (literals []string, exact bool) {
	parsed, err := syntax.Parse(re.String(), syntax.Perl)
	if err != nil {
		return nil, false
	}
	l := literalsOf(parsed)
	if !l.anchoredStart {
		return nil, false
	}
	return l.values, l.exact && l.anchoredEnd
}

// Texts are what a part of an expression matches, or how that begins.
type literals struct {
	values        []string
	exact         bool // they are all that is matched, and not how it begins
	anchoredStart bool // only at the beginning of what is looked at
	anchoredEnd   bool // only at its end
}

// anyText is what nothing is known of.
var anyText = literals{values: []string{""}}

// literalsOf reads a part of an expression. The replacement character matches all
// that is not UTF-8, and is no text.
func literalsOf(re *syntax.Regexp) literals {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 && !slices.Contains(re.Rune, utf8.RuneError) {
			return literals{values: []string{string(re.Rune)}, exact: true}
		}
	case syntax.OpEmptyMatch:
		return literals{values: []string{""}, exact: true}
	case syntax.OpBeginText:
		return literals{values: []string{""}, exact: true, anchoredStart: true}
	case syntax.OpEndText:
		return literals{values: []string{""}, exact: true, anchoredEnd: true}
	case syntax.OpCapture:
		return literalsOf(re.Sub[0])
	case syntax.OpCharClass:
		return classLiterals(re.Rune)
	case syntax.OpQuest:
		return alternatives([]*syntax.Regexp{re.Sub[0], {Op: syntax.OpEmptyMatch}})
	case syntax.OpAlternate:
		return alternatives(re.Sub)
	case syntax.OpConcat:
		return concatenation(re.Sub)
	}
	return anyText
}

// classLiterals returns the characters of a class, which is given by its ranges.
func classLiterals(ranges []rune) literals {
	l := literals{exact: true}
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			if len(l.values) == maxLiterals || r == utf8.RuneError {
				return anyText
			}
			l.values = append(l.values, string(r))
		}
	}
	return l
}

func alternatives(re []*syntax.Regexp) literals {
	l := literals{exact: true, anchoredStart: true, anchoredEnd: true}
	for _, one := range re {
		next := literalsOf(one)
		l.values = append(l.values, next.values...)
		l.exact, l.anchoredStart, l.anchoredEnd = l.exact && next.exact, l.anchoredStart && next.anchoredStart, l.anchoredEnd && next.anchoredEnd
	}
	if len(l.values) > maxLiterals {
		return anyText
	}
	return l
}

// concatenation returns what parts match one behind the other. What stands behind a
// part that is not exact adds nothing.
func concatenation(re []*syntax.Regexp) literals {
	l := literals{values: []string{""}, exact: true}
	for i, one := range re {
		next := literalsOf(one)
		if len(l.values)*len(next.values) > maxLiterals {
			l.exact, l.anchoredEnd = false, false
			return l
		}
		var values []string
		for _, head := range l.values {
			for _, tail := range next.values {
				values = append(values, head+tail)
			}
		}
		l = literals{values: values, exact: next.exact, anchoredStart: l.anchoredStart || i == 0 && next.anchoredStart, anchoredEnd: next.anchoredEnd}
		if !l.exact {
			return l
		}
	}
	return l
}
