package filesearch

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// The limits of an expression.
const (
	// maxInstruction is the maximum number of instructions of a compiled expression.
	// A larger expression is an error.
	maxInstruction = 20_000
	// maxWindow is the largest part of a line that is matched at once, in bytes.
	maxWindow = 128 << 10
	// minWindow is the smallest part of a line that is matched at once, in bytes. An
	// expensive expression gets windows of this size.
	minWindow = 2 << 10
	// maxSteps bounds the work between two checks of the context: the instructions of
	// the expression times the bytes of a window. An expression that exceeds this bound
	// even in a window of minWindow bytes is still matched in windows of that size.
	maxSteps = 2 << 20
)

// An Expression is a compiled regular expression with the size that bounds its cost.
// CompileExpression makes it. It may be used by several goroutines at once.
type Expression struct {
	compiled *regexp.Regexp
	size     int  // instructions of the compiled program
	anchored bool // it can match the begin or end of a line or text
}

// CompileExpression compiles a regular expression. It returns an error if the expression
// has more than maxPatternBytes or compiles to more than maxInstruction instructions.
func CompileExpression(text string) (Expression, error) {
	if len(text) > maxPatternBytes {
		return Expression{}, fmt.Errorf("the expression has %d bytes: use at most %d", len(text), maxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return Expression{}, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return Expression{}, err
	}
	if len(program.Inst) > maxInstruction {
		return Expression{}, fmt.Errorf("the expression is too large: %d instructions, and the limit is %d: repeat less", len(program.Inst), maxInstruction)
	}
	compiled, err := regexp.Compile(text)
	return Expression{compiled, len(program.Inst), slices.ContainsFunc(program.Inst, isAnchor)}, err
}

// isAnchor reports whether an instruction matches the beginning or the end of a
// line or text.
func isAnchor(i syntax.Inst) bool {
	const edges = syntax.EmptyBeginLine | syntax.EmptyEndLine | syntax.EmptyBeginText | syntax.EmptyEndText
	return i.Op == syntax.InstEmptyWidth && syntax.EmptyOp(i.Arg)&edges != 0
}

// windowSize returns the size, in bytes, of a window: the part of a line that is
// matched at once. An expensive expression gets a smaller window. The size is between
// minWindow and maxWindow.
func (e Expression) windowSize() int { return min(max(maxSteps/e.size, minWindow), maxWindow) }

// maxSubmatches returns how many matches to search for in a window of size bytes, at
// least one. The search for each match can read the whole window, so the number of
// matches is limited to keep the work within maxSteps.
func (e Expression) maxSubmatches(size int) int {
	return min(maxSubmatches, max(maxSteps/max(size*e.size, 1), 1))
}

// Literal returns the longest literal text that every match of the expression contains, or
// an empty text if it finds no such text. A case-insensitive letter is not literal.
func (e Expression) Literal() string {
	parsed, err := syntax.Parse(e.compiled.String(), syntax.Perl)
	if err != nil {
		return ""
	}
	return longestLiteral(parsed.Simplify())
}

// longestLiteral returns the longest literal that every match of the parsed expression
// e contains. It looks into groups, sequences, and repetitions that match at least
// once. It ignores alternatives and optional parts, which a match need not contain.
func longestLiteral(e *syntax.Regexp) string {
	longest := ""
	switch e.Op {
	case syntax.OpLiteral:
		if e.Flags&syntax.FoldCase == 0 && !strings.ContainsAny(string(e.Rune), "\n\r\x00\ufffd") {
			longest = string(e.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		longest = longestLiteral(e.Sub[0])
	case syntax.OpConcat:
		for _, sub := range e.Sub {
			if l := longestLiteral(sub); len(l) > len(longest) {
				longest = l
			}
		}
	}
	return longest
}
