package filesearch

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// A Match is one matching line of a file.
type Match struct {
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
	// maxFile is the maximum size of a searched file, in bytes.
	maxFile = 64 << 20
	// sampleSize is the number of bytes that decide whether a file is binary.
	sampleSize = 4096
	// matchOverhead is the size of a match in JSON without its text, in bytes.
	matchOverhead = 128
	// spanOverhead is the size of a submatch in JSON, in bytes.
	spanOverhead = 24
)

// A LineScanner searches files for an expression and collects the matching lines.
// NewLineScanner makes it. It belongs to one goroutine.
type LineScanner struct {
	Matches []Match  // the matching lines within the limits, in the order of the scans
	Total   int      // how many lines match, also over the limits
	Unread  []string // the paths of files that ScanNamed could not read

	expression Expression
	limit      int // matches to return; further ones are only counted
	bytesLeft  int // size of the matches that may still be returned; negative: full
}

// NewLineScanner returns a LineScanner that collects at most limit matches, whose JSON has
// about maxBytes bytes in all. It only counts further matches.
func NewLineScanner(e Expression, limit, maxBytes int) *LineScanner {
	return &LineScanner{Matches: []Match{}, expression: e, limit: limit, bytesLeft: maxBytes}
}

// ScanNamed opens and searches the file name of a tree. Its matches get path. If the file
// cannot be read, ScanNamed adds path to Unread and returns nil. It returns the cause of
// ctx if ctx ends.
func (s *LineScanner) ScanNamed(ctx context.Context, tree *workspace.Tree, name, path string) error {
	f, err := tree.Open(name)
	if err == nil {
		defer f.Close()
		err = s.Scan(ctx, f, path)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		s.Unread = append(s.Unread, path)
	}
	return nil
}

// Scan searches an open file, whose matches get path. The caller closes the file. Scan
// skips a file with a NUL in its first sampleSize bytes. It returns workspace.ErrTooLarge
// for a file over maxFile, the error of reading, and the cause of ctx if ctx ends.
func (s *LineScanner) Scan(ctx context.Context, f io.Reader, path string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	window := s.expression.windowSize()
	lines := bufio.NewReaderSize(io.LimitReader(f, maxFile+1), max(window, sampleSize))
	head, err := lines.Peek(sampleSize)
	if err != nil && err != io.EOF || bytes.IndexByte(head, 0) >= 0 {
		return notEOF(err)
	}
	read := 0
	for n := 1; ; n++ {
		size, err := s.searchLine(ctx, lines, path, n)
		if read += size; read > maxFile {
			return fmt.Errorf("search %s: %w: over %d bytes", path, workspace.ErrTooLarge, maxFile)
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
func (s *LineScanner) searchLine(ctx context.Context, lines *bufio.Reader, path string, n int) (size int, err error) {
	m := Match{Path: path, Line: n, Submatches: [][2]int{}}
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
		if at == 0 && ended && (len(s.Matches) >= s.limit || s.bytesLeft < 0) { // the output is full, so the line is only counted
			if s.expression.compiled.Match(text) {
				s.Total++
			}
			return size, nil
		}
		if at == 0 && (!ended || s.expression.compiled.Match(text)) {
			m.Text = truncateLine(strings.ToValidUTF8(string(text[:min(len(text), (maxMatchRunes+1)*utf8.UTFMax)]), "\ufffd"))
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
func (s *LineScanner) searchWindow(m *Match, text []byte, at int, last bool) (found bool) {
	if !s.expression.compiled.Match(text) {
		return false
	}
	for _, span := range s.expression.compiled.FindAllIndex(text, s.expression.maxSubmatches(len(text))) {
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
func (s *LineScanner) add(m Match) {
	if s.Total++; len(s.Matches) >= s.limit || s.bytesLeft < 0 {
		return
	}
	if s.bytesLeft -= len(m.Path) + len(m.Text) + matchOverhead + spanOverhead*len(m.Submatches); s.bytesLeft >= 0 {
		s.Matches = append(s.Matches, m)
	}
}

// truncateLine returns the first maxMatchRunes runes of a line, with "..." if the line is
// longer.
func truncateLine(line string) string {
	n := 0
	for at := range line {
		if n == maxMatchRunes {
			return line[:at] + "..."
		}
		n++
	}
	return line
}
