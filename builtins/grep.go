package builtins

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

//go:embed grep.md
var grepDescription string

// grepping is what the tool grep is given.
type grepping struct {
	Pattern string `json:"pattern" jsonschema:"a regular expression"`
	Path    string `json:"path,omitempty" jsonschema:"the file or directory to search; the workspace where there is none"`
	Include string `json:"include,omitempty" jsonschema:"which files, such as *.go"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many matches to return at most"`
}

// grepped is what it returns.
type grepped struct {
	Matches   []match  `json:"matches"` // by path and line
	Truncated bool     `json:"truncated,omitempty"`
	Total     int      `json:"total"`            // how many lines match, returned or not
	Unread    []string `json:"unread,omitempty"` // files and directories that could not be read
}

// match is a line that matches.
type match struct {
	Path       string   `json:"path"` // absolute
	Line       int      `json:"line"` // from 1
	Text       string   `json:"text"`
	Submatches [][2]int `json:"submatches"` // begin and end in bytes of the line; at most 100
}

// The limits of a match.
const (
	maxSubmatches = 100
	maxMatchRunes = 2000
	maxGrepFile   = 64 << 20 // bytes of a file that is searched
)

type grepper struct{ Config }

func (g grepper) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[grepping, grepped]{
		Description: grepDescription,
		Input:       domain.Constrained[grepping](`{"properties":{"pattern":{"minLength":1},"limit":{"minimum":1}}}`),
		Execute:     g.grep,
		Present:     presentGrepped,
		Idempotent:  true,
	})
}

func (g grepper) grep(ctx context.Context, in grepping, inv domain.Invocation) (grepped, error) {
	expression, err := regexp.Compile(in.Pattern)
	if err != nil {
		return grepped{}, because(err, "Unable to grep for %s", in.Pattern)
	}
	include, err := parsePattern(in.Include) // of the empty pattern, nothing is asked
	if err != nil {
		return grepped{}, because(err, "Unable to grep for %s: include %s", in.Pattern, in.Include)
	}
	target, err := g.scope(ctx, inv, in.Path)
	if err != nil {
		return grepped{}, orBecause(err, "Unable to grep for %s", in.Pattern)
	}
	if err := g.ask(ctx, inv, "grep", in.Pattern, map[string]any{"root": g.Workspace.Path(), "path": target.Path, "include": in.Include, "limit": in.Limit}); err != nil {
		return grepped{}, err
	}
	out := grepped{Matches: []match{}}
	scan := scanner{expression, limited(in.Limit), &out}
	if err := g.scan(ctx, target, scan, in, include); err != nil {
		return grepped{}, because(err, "Unable to grep for %s", in.Pattern)
	}
	out.Truncated = out.Total > len(out.Matches)
	return out, nil
}

// scan searches a file, or the files of a directory.
func (g grepper) scan(ctx context.Context, t workspace.Target, s scanner, in grepping, include pattern) error {
	info, err := t.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		f, err := t.Open()
		if err != nil {
			return err
		}
		defer f.Close()
		return s.file(f, t.Path)
	}
	listed, err := g.search().list(ctx, t, literalOf(in.Pattern))
	if err != nil {
		return err
	}
	s.out.Unread = rooted(t, listed.unread)
	root, err := t.Enter()
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range listed.files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if in.Include == "" || include.fits(name) {
			s.search(root, name, path.Join(t.Path, name))
		}
	}
	return nil
}

// A scanner collects the matches of an expression.
type scanner struct {
	expression *regexp.Regexp
	limit      int
	out        *grepped
}

// search searches a file of a directory, and notes it if it cannot be read.
func (s scanner) search(root *os.Root, name, path string) {
	f, err := root.Open(name)
	if err == nil {
		defer f.Close()
		err = s.file(f, path)
	}
	if err != nil {
		s.out.Unread = append(s.out.Unread, path)
	}
}

// file searches an open file, unless it is binary.
func (s scanner) file(f io.Reader, path string) error {
	data, err := io.ReadAll(io.LimitReader(f, maxGrepFile+1))
	if err == nil && len(data) > maxGrepFile {
		err = fmt.Errorf("search %s: %w: over %d bytes", path, workspace.ErrTooLarge, maxGrepFile)
	}
	if err != nil || bytes.IndexByte(data[:min(len(data), sampleSize)], 0) >= 0 {
		return err
	}
	for n := 1; len(data) > 0; n++ {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		s.line(bytes.TrimSuffix(line, []byte("\r")), path, n)
	}
	return nil
}

func (s scanner) line(line []byte, path string, n int) {
	if !s.expression.Match(line) {
		return
	}
	if s.out.Total++; len(s.out.Matches) >= s.limit {
		return
	}
	m := match{Path: path, Line: n, Text: shorten(strings.ToValidUTF8(string(line), "\ufffd"), maxMatchRunes), Submatches: [][2]int{}}
	for _, at := range s.expression.FindAllIndex(line, maxSubmatches) {
		m.Submatches = append(m.Submatches, [2]int{at[0], at[1]})
	}
	s.out.Matches = append(s.out.Matches, m)
}

// literalOf returns a text that every match of an expression holds, or the
// empty text if none is found: the longest literal of a sequence, in which no
// letter stands for another case of itself.
func literalOf(expression string) string {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return ""
	}
	return literalIn(parsed.Simplify())
}

func literalIn(e *syntax.Regexp) string {
	longest := ""
	switch e.Op {
	case syntax.OpLiteral:
		if e.Flags&syntax.FoldCase == 0 && !strings.ContainsAny(string(e.Rune), "\n\r\x00\ufffd") {
			longest = string(e.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		longest = literalIn(e.Sub[0])
	case syntax.OpConcat:
		for _, sub := range e.Sub {
			if l := literalIn(sub); len(l) > len(longest) {
				longest = l
			}
		}
	}
	return longest
}

func presentGrepped(_ grepping, out domain.Encoded[grepped]) []domain.Content {
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
	return []domain.Content{domain.Text(b.String())}
}
