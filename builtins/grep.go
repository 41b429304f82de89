package builtins

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed grep.md
var grepDescription string

// grepArgs is the input of the tool grep.
type grepArgs struct {
	Pattern string `json:"pattern" jsonschema:"a regular expression"`
	Path    string `json:"path,omitempty" jsonschema:"the file or directory to search; the workspace where there is none"`
	Include string `json:"include,omitempty" jsonschema:"which files, such as *.go"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many matches to return at most"`
}

// grepResult is the output of the tool grep.
type grepResult struct {
	Matches   []grepMatch   `json:"matches"` // by path and line
	Truncated bool          `json:"truncated,omitempty"`
	Total     int           `json:"total"`            // how many lines match, returned or not
	Unread    []string      `json:"unread,omitempty"` // files and directories that could not be read
	Withheld  withheldFiles `json:"left_out,omitzero"`
}

// A grepMatch is one matching line of a file.
type grepMatch struct {
	Path       string   `json:"path"` // absolute
	Line       int      `json:"line"` // from 1
	Text       string   `json:"text"`
	Submatches [][2]int `json:"submatches"` // begin and end in bytes of the line; at most 100
}

// The limits of a search for text.
const (
	// maxSubmatches is the maximum number of submatches that are returned for one line.
	maxSubmatches = 100
	// maxMatchRunes is the maximum length of a returned line, in runes.
	maxMatchRunes = 2000
	// maxGrepFile is the maximum size of a searched file, in bytes.
	maxGrepFile = 64 << 20
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
	// matchOverhead is the size of a match in JSON without its text, in bytes.
	matchOverhead = 128
	// spanOverhead is the size of a submatch in JSON, in bytes.
	spanOverhead = 24
)

// A grepTool is the tool grep.
type grepTool struct{ Config }

// tool returns the domain.Tool of grep.
func (g grepTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[grepArgs, grepResult]{
		Description: grepDescription,
		Input:       domain.Constrained[grepArgs](`{"properties":{"pattern":{"minLength":1},"limit":{"minimum":1}}}`),
		Execute:     g.grep,
		Present:     presentGrep,
		Idempotent:  true,
	})
}

// grep executes one call. It compiles the expression, asks for permission to search for
// it, and searches the file, or all files of the directory that the call may read.
func (g grepTool) grep(ctx context.Context, in grepArgs, inv domain.Invocation) (grepResult, error) {
	expression, err := compileExpression(in.Pattern)
	if err != nil {
		return grepResult{}, failure(err, "Unable to grep for %s", in.Pattern)
	}
	include, err := parsePattern(in.Include) // the pattern of an empty Include is not used
	if err != nil {
		return grepResult{}, failure(err, "Unable to grep for %s: include %s", in.Pattern, in.Include)
	}
	held, err := g.acquireDirectory(ctx, inv, in.Path)
	if err != nil {
		return grepResult{}, pathFailure(err, "Unable to grep for %s", in.Pattern)
	}
	defer held.release()
	if err := g.assertOne(ctx, inv, held, "grep", in.Pattern, map[string]any{"root": g.Workspace.Path(), "path": held.resolved.Path, "include": in.Include, "limit": in.Limit}, nil); err != nil {
		return grepResult{}, err
	}
	out := grepResult{Matches: []grepMatch{}}
	scan := scanner{expression, resultLimit(in.Limit), &out, maxResultBytes}
	err = g.searchTarget(ctx, inv, held, &scan, in, include)
	if refused, ok := err.(permissionError); ok {
		return grepResult{}, refused.error
	}
	if err != nil {
		return grepResult{}, failure(err, "Unable to grep for %s", in.Pattern)
	}
	out.Truncated = out.Total > len(out.Matches)
	return out, nil
}

// A permissionError wraps an error of a permission, so that the tool returns that error
// unchanged and not as a failure.
type permissionError struct{ error }

// searchTarget searches the opened file, or the files below the opened directory in the
// order of their paths. It returns a permissionError if the permission refuses.
func (g grepTool) searchTarget(ctx context.Context, inv domain.Invocation, held *acquiredPath, s *scanner, in grepArgs, include globPattern) error {
	handle, err := held.verifiedHandle()
	if err != nil {
		return err
	}
	info, err := handle.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		shown, left, err := g.filterPermitted(ctx, inv, held, "grep", []string{""})
		s.out.Withheld = left
		if err != nil {
			return permissionError{err}
		}
		if len(shown) == 0 {
			return nil
		}
		f, err := handle.Open()
		if err != nil {
			return err
		}
		return s.searchFile(ctx, f, held.resolved.Path)
	}
	names, err := g.listCandidates(ctx, handle, s, in, include)
	if err != nil {
		return err
	}
	shown, left, err := g.filterPermitted(ctx, inv, held, "grep", names)
	s.out.Withheld = left
	if err != nil {
		return permissionError{err}
	}
	shown, err = g.filterByLiteral(ctx, handle, in, shown)
	if err != nil {
		return err
	}
	tree, err := handle.Tree()
	if err != nil {
		return err
	}
	defer tree.Close()
	for _, name := range shown {
		if err := s.searchNamed(ctx, tree, name, path.Join(held.resolved.Path, name)); err != nil {
			return err
		}
	}
	return nil
}

// listCandidates lists the files below the directory that match include and are not
// ignored. It adds unreadable directories to the output.
func (g grepTool) listCandidates(ctx context.Context, h *workspace.Handle, s *scanner, in grepArgs, include globPattern) ([]string, error) {
	listed, err := g.lister().list(ctx, h, "")
	if err != nil {
		return nil, err
	}
	s.out.Unread = absolutePaths(h.Resolved(), listed.unread)
	var names []string
	for _, name := range listed.files {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if in.Include == "" || include.matchesPath(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// filterByLiteral sorts names. If there is a search program, it also drops files that
// do not contain the literal text that every match contains. Without a program it keeps
// all files, because reading a file twice costs more than searching it once.
func (g grepTool) filterByLiteral(ctx context.Context, h *workspace.Handle, in grepArgs, names []string) ([]string, error) {
	literal := requiredLiteral(in.Pattern)
	if g.SearchProgram != "" && literal != "" {
		listed, err := g.lister().list(ctx, h, literal)
		if err != nil {
			return nil, err
		}
		holding := make(map[string]bool, len(listed.files))
		for _, name := range listed.files {
			holding[name] = true
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !holding[name] })
	}
	slices.Sort(names)
	return names, nil
}

// An expression is a compiled regular expression with the size that bounds its cost.
type expression struct {
	*regexp.Regexp
	size     int  // instructions of the compiled program
	anchored bool // it can match the begin or end of a line or text
}

// compileExpression compiles a regular expression. It returns an error if the expression
// has more than maxPatternBytes or compiles to more than maxInstruction instructions.
func compileExpression(text string) (expression, error) {
	if len(text) > maxPatternBytes {
		return expression{}, fmt.Errorf("the expression has %d bytes: use at most %d", len(text), maxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return expression{}, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return expression{}, err
	}
	if len(program.Inst) > maxInstruction {
		return expression{}, fmt.Errorf("the expression is too large: %d instructions, and the limit is %d: repeat less", len(program.Inst), maxInstruction)
	}
	compiled, err := regexp.Compile(text)
	return expression{compiled, len(program.Inst), slices.ContainsFunc(program.Inst, isAnchor)}, err
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
func (e expression) windowSize() int { return min(max(maxSteps/e.size, minWindow), maxWindow) }

// maxSubmatches returns how many matches to search for in a window of size bytes, at
// least one. The search for each match can read the whole window, so the number of
// matches is limited to keep the work within maxSteps.
func (e expression) maxSubmatches(size int) int {
	return min(maxSubmatches, max(maxSteps/max(size*e.size, 1), 1))
}

// A scanner searches files for an expression and collects the matching lines. It belongs
// to one call.
type scanner struct {
	expression expression
	limit      int // matches to return; further ones are only counted
	out        *grepResult
	bytesLeft  int // size of the matches that may still be returned; negative: full
}

// searchNamed opens and searches one file of the directory. If the file cannot be read,
// it adds the file to the output as unreadable and returns nil. It returns the cause of
// ctx if ctx ends.
func (s *scanner) searchNamed(ctx context.Context, tree *workspace.Tree, name, path string) error {
	f, err := tree.Open(name)
	if err == nil {
		defer f.Close()
		err = s.searchFile(ctx, f, path)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		s.out.Unread = append(s.out.Unread, path)
	}
	return nil
}

// searchFile searches an open file. It skips a file with a NUL in its first sampleSize
// bytes. It returns workspace.ErrTooLarge for a file over maxGrepFile.
func (s *scanner) searchFile(ctx context.Context, f io.Reader, path string) error {
	window := s.expression.windowSize()
	lines := bufio.NewReaderSize(contextReader{ctx, io.LimitReader(f, maxGrepFile+1)}, max(window, sampleSize))
	head, err := lines.Peek(sampleSize)
	if err != nil && err != io.EOF || bytes.IndexByte(head, 0) >= 0 {
		return notEOF(err)
	}
	read := 0
	for n := 1; ; n++ {
		size, err := s.searchLine(ctx, lines, path, n)
		if read += size; read > maxGrepFile {
			return fmt.Errorf("search %s: %w: over %d bytes", path, workspace.ErrTooLarge, maxGrepFile)
		}
		if err != nil {
			return notEOF(err)
		}
	}
}

// notEOF returns err, or nil for io.EOF.
func notEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// overlap is the number of bytes that consecutive windows share, so that a match across
// their border is found. It must be less than minWindow.
const overlap = 1 << 10

// searchLine searches the next line, number n, and returns its size in bytes. At the
// end of the file it returns io.EOF. It checks ctx before each window.
//
// A long line is matched in overlapping windows, so that memory is bounded by one
// window and a match across a border is found. Once the output is full, searchLine
// still counts a matching line, but it does not look for the matches in a line that
// fits in one window.
func (s *scanner) searchLine(ctx context.Context, lines *bufio.Reader, path string, n int) (size int, err error) {
	m := grepMatch{Path: path, Line: n, Submatches: [][2]int{}}
	found, rest := false, []byte(nil)
	for at, ended := 0, false; !ended; {
		if ctx.Err() != nil {
			return size, context.Cause(ctx)
		}
		piece, err := lines.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return size, err
		}
		size += len(piece)
		if size == 0 {
			return 0, io.EOF
		}
		ended = err == nil || err == io.EOF
		text := piece
		if len(rest) > 0 {
			text = append(rest, piece...)
		}
		if ended {
			text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
		}
		if at == 0 && ended && (len(s.out.Matches) >= s.limit || s.bytesLeft < 0) { // the output is full, so the line is only counted
			if s.expression.Match(text) {
				s.out.Total++
			}
			return size, nil
		}
		if at == 0 && (!ended || s.expression.Match(text)) {
			m.Text = truncateRunes(strings.ToValidUTF8(string(text[:min(len(text), (maxMatchRunes+1)*utf8.UTFMax)]), "\ufffd"), maxMatchRunes)
		}
		found = s.searchWindow(&m, text, at, ended) || found
		if ended {
			break
		}
		keep := min(overlap, len(text))
		for keep < len(text) && keep > 0 && !utf8.RuneStart(text[len(text)-keep]) {
			keep--
		}
		rest = bytes.Clone(text[len(text)-keep:])
		at += len(text) - keep
	}
	if found {
		s.add(m)
	}
	return size, nil
}

// searchWindow adds the matches in text to m and returns true if there are any. text is
// a window of a line and begins at offset at of the line. last is true for the last
// window of the line.
//
// searchWindow adds a match only once if the previous window also contained it. For an
// expression with an anchor it ignores a match at a border of the window inside the
// line, because ^ or $ matches there without a line end.
func (s *scanner) searchWindow(m *grepMatch, text []byte, at int, last bool) (found bool) {
	if !s.expression.Match(text) {
		return false
	}
	for _, span := range s.expression.FindAllIndex(text, s.expression.maxSubmatches(len(text))) {
		if s.expression.anchored && (at > 0 && span[0] == 0 || !last && span[1] == len(text)) {
			continue
		}
		begin, end := at+span[0], at+span[1]
		found = true
		if n := len(m.Submatches); n < maxSubmatches && (n == 0 || begin >= m.Submatches[n-1][1] && [2]int{begin, end} != m.Submatches[n-1]) {
			m.Submatches = append(m.Submatches, [2]int{begin, end})
		}
	}
	return found
}

// add counts a matching line and stores it while the limits allow.
func (s *scanner) add(m grepMatch) {
	if s.out.Total++; len(s.out.Matches) >= s.limit || s.bytesLeft < 0 {
		return
	}
	if s.bytesLeft -= len(m.Path) + len(m.Text) + matchOverhead + spanOverhead*len(m.Submatches); s.bytesLeft >= 0 {
		s.out.Matches = append(s.out.Matches, m)
	}
}

// requiredLiteral returns the longest literal text that every match of an expression
// contains, or an empty text if it finds no such text. A case-insensitive letter is not
// literal.
func requiredLiteral(expression string) string {
	parsed, err := syntax.Parse(expression, syntax.Perl)
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

// presentGrep renders the output for the model: the matching lines grouped by file, with
// notes about further matches, unreadable files and withheld files.
func presentGrep(_ grepArgs, out domain.Encoded[grepResult]) []domain.Content {
	g, err := out.Value()
	if err != nil {
		return nil
	}
	var b strings.Builder
	if g.Total == 0 {
		b.WriteString("No files found")
	} else {
		fmt.Fprintf(&b, "Found %d matches", g.Total)
	}
	last := ""
	for i, m := range g.Matches {
		if m.Path != last {
			if i > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "\n%s:", m.Path)
			last = m.Path
		}
		fmt.Fprintf(&b, "\n  Line %d: %s", m.Line, m.Text)
	}
	if g.Truncated {
		fmt.Fprintf(&b, "\n\n(%d of %d matches; narrow the search or raise limit)", len(g.Matches), g.Total)
	}
	if len(g.Unread) > 0 {
		fmt.Fprintf(&b, "\n\n(%d files or directories could not be read, such as %s)", len(g.Unread), g.Unread[0])
	}
	b.WriteString(g.Withheld.String())
	return []domain.Content{domain.Text(b.String())}
}
