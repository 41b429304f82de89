package patch

import (
	"fmt"
	"hash/maphash"
	"strings"
	"unicode"
)

// The limits of a text to which an Update is applied.
const (
	// maxTextLines is the maximum number of lines.
	maxTextLines = 4 << 20
	// maxComparisons is the maximum number of comparisons of two lines for one Update.
	maxComparisons = 1 << 27
)

// lineForms are the forms in which lines are compared, in the order of the search. Two
// lines match in a form if the function returns the same text for both.
var lineForms = [...]func(line string) string{
	func(line string) string { return line },
	func(line string) string { return strings.TrimRightFunc(line, unicode.IsSpace) },
	strings.TrimSpace,
	func(line string) string { return strings.TrimSpace(typography.Replace(line)) },
}

// typography replaces typographic punctuation by its ASCII form. It removes byte order
// marks.
var typography = strings.NewReplacer(
	"\u2010", "-", "\u2011", "-", "\u2012", "-", "\u2013", "-", "\u2014", "-", "\u2015", "-", "\u2212", "-",
	"\u2018", "'", "\u2019", "'", "\u201a", "'", "\u201b", "'",
	"\u201c", `"`, "\u201d", `"`, "\u201e", `"`, "\u201f", `"`,
	"\u2026", "...", bom, "",
	"\u00a0", " ", "\u2002", " ", "\u2003", " ", "\u2004", " ", "\u2005", " ", "\u2006", " ", "\u2007", " ", "\u2008", " ",
	"\u2009", " ", "\u200a", " ", "\u202f", " ", "\u205f", " ", "\u3000", " ",
)

// A lineSearch finds lines in a text. It belongs to one goroutine.
type lineSearch struct {
	lines       []string // of the text, with their line ends
	seed        maphash.Seed
	hashes      [len(lineForms)][]uint64 // of the lines in each form; nil until the form is searched
	comparisons int                      // so far
}

// newLineSearch returns a lineSearch for a text. It returns ErrLimit if the text has over
// maxTextLines lines.
func newLineSearch(text string) (*lineSearch, error) {
	if n := strings.Count(text, "\n"); n >= maxTextLines {
		return nil, fmt.Errorf("%w: the file has %d lines, and the limit is %d", ErrLimit, n, maxTextLines)
	}
	s := &lineSearch{seed: maphash.MakeSeed()}
	for line := range strings.Lines(text) {
		s.lines = append(s.lines, line)
	}
	return s, nil
}

// content returns a line without its line end.
func content(line string) string {
	text, ended := strings.CutSuffix(line, "\n")
	if ended {
		text = strings.TrimSuffix(text, "\r")
	}
	return text
}

// find returns the index of the first place at or after from where the lines of pattern
// follow each other, or -1. If atEnd is true, that place must end at the end of the text.
// A match in an earlier form wins over an earlier place. pattern is not empty. find
// returns ErrLimit after maxComparisons.
func (s *lineSearch) find(pattern []string, from int, atEnd bool) (int, error) {
	last := len(s.lines) - len(pattern)
	if atEnd {
		from = max(from, last)
	}
	for form := range lineForms {
		if from > last {
			break
		}
		hashes := make([]uint64, len(pattern))
		for i, line := range pattern {
			hashes[i] = s.hash(form, line)
		}
		for at := from; at <= last; at++ {
			if s.matches(form, at, pattern, hashes) {
				return at, nil
			}
			if s.comparisons > maxComparisons {
				return -1, fmt.Errorf("%w: the search for the hunks takes over %d comparisons of lines: use fewer hunks", ErrLimit, maxComparisons)
			}
		}
	}
	return -1, nil
}

// matches reports whether the lines of pattern are at the index at. hashes are the hashes
// of pattern.
func (s *lineSearch) matches(form, at int, pattern []string, hashes []uint64) bool {
	found := s.lineHashes(form)[at:]
	for i, hash := range hashes {
		s.comparisons++
		if found[i] != hash {
			return false
		}
	}
	normalize := lineForms[form]
	for i, line := range pattern {
		if normalize(content(s.lines[at+i])) != normalize(line) {
			return false
		}
	}
	return true
}

// lineHashes returns the hashes of all lines in a form.
func (s *lineSearch) lineHashes(form int) []uint64 {
	if s.hashes[form] == nil {
		s.hashes[form] = make([]uint64, len(s.lines))
		for i, line := range s.lines {
			s.hashes[form][i] = s.hash(form, content(line))
		}
	}
	return s.hashes[form]
}

// hash returns the hash of a line in a form.
func (s *lineSearch) hash(form int, line string) uint64 {
	return maphash.String(s.seed, lineForms[form](line))
}

// lineEnd returns the line end for a line that is inserted above the line at. It is the
// line end of the line above, else the line end of the line at, else LF.
func (s *lineSearch) lineEnd(at int) string {
	for _, i := range []int{at - 1, at, at - 2} {
		if i >= 0 && i < len(s.lines) {
			if end := s.lines[i][len(content(s.lines[i])):]; end != "" {
				return end
			}
		}
	}
	return "\n"
}
