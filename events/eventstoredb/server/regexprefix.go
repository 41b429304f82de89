package server

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// maxLiterals bounds the number of strings that are derived from one expression,
// since alternatives in a concatenation multiply.
const maxLiterals = 64

// regexPrefixes returns strings such that every match of an expression begins
// with one of them. The result exact is true if each match equals one of the
// strings. If the expression is not anchored at its start, or is too complex,
// regexPrefixes returns nil.
//
// It analyses the syntax tree from the leaves up. Each node gives a set of
// strings, and each match of the node begins with one of them. A concatenation
// multiplies the sets of its parts as long as they are exact. An alternation
// unites the sets of its parts. Every other node (repetition, case folding, any
// character) gives the empty string, which excludes no text. The result may
// exclude too little and never too much.
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

// literals describes the matches of a part of an expression: each match begins
// with one of the values.
type literals struct {
	values []string
	// exact is set if each match equals one of the values.
	exact bool
	// anchoredStart is set if matches begin at the beginning of the text.
	anchoredStart bool
	// anchoredEnd is set if matches end at the end of the text.
	anchoredEnd bool
}

// anyText is the result for a part that cannot be analysed. Every match begins
// with its value, the empty string.
var anyText = literals{values: []string{""}}

// literalsOf analyses a part of an expression. A literal U+FFFD yields anyText,
// because in package regexp it also matches bytes that are not UTF-8.
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

// classLiterals returns the characters of a class as values. The class is given
// as pairs of first and last rune. A class of more than maxLiterals characters,
// or with U+FFFD, yields anyText.
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

// alternatives returns the literals of an alternation, with the values of all
// parts. exact, anchoredStart and anchoredEnd are set only if every part has
// them set.
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

// concatenation returns the literals of parts that match one after the other. It
// stops at the first part that is not exact, or where the values exceed
// maxLiterals; the values so far remain prefixes of every match.
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
