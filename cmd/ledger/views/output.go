package views

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// An OutputPage selects the lines of an output to print, or that its description is
// printed instead.
type OutputPage struct {
	Offset   int64 // number of the first line, from 1
	Limit    int64 // number of lines; 0: all
	Describe bool  // print the description in place of the bytes
}

// An outputRow is the description of an output that --stat prints.
type outputRow struct {
	domain.Retained
	Settlement domain.EventID `json:"settlement"` // the event that names the output
	Channel    string         `json:"channel"`    // the name of the output within its settlement, such as text
}

// Check returns a usage error for lines that no output has.
func (p OutputPage) Check() error {
	if p.Offset < 1 || p.Limit < 0 {
		return fault.Usage("--offset counts lines from 1, and --limit is not below zero")
	}
	return nil
}

// PrintOutput prints the lines that p selects of an output, or the description of that
// output.
func PrintOutput(ctx context.Context, out *render.Printer, s *stores.Store, ref domain.Ref, p OutputPage) error {
	o, err := s.Outputs.Open(ctx, ref)
	if err != nil {
		return err
	}
	defer o.Close()
	if p.Describe {
		row := outputRow{o.Retained(), ref.Settlement(), ref.Channel().String()}
		return out.Object(row, func() {
			out.Fields("output", ref.String(), "size", render.Bytes(row.Bytes), "lines", fmt.Sprint(row.Lines), "media type", render.Printable(row.MIME), "sha256", row.SHA256)
		})
	}
	return printPage(ctx, out, o, p)
}

// printPage copies the lines that p selects to the standard output in chunks. On a
// terminal it then prints a hint with the offset of the next page.
func printPage(ctx context.Context, out *render.Printer, o remote.Reader, p OutputPage) error {
	lines := o.Retained().Lines
	if p.Offset > lines {
		f := fault.Usage("line %d is behind the end: %s has %s", p.Offset, o.Retained().Ref, render.Count(int(lines), "line"))
		f.Hint = "name an --offset from 1 on"
		return f
	}
	window := &lineRange{to: out.Out, skip: p.Offset - 1, left: p.Limit, bounded: p.Limit > 0}
	if err := copyLines(ctx, window, o); err != nil {
		return err
	}
	if next := p.Offset + p.Limit; window.bounded && next <= lines && out.Terminal {
		fmt.Fprintf(out.Err, "hint: %d more lines: --offset %d\n", lines-next+1, next)
	}
	return nil
}

// copyLines copies the reader from to the writer to. It returns nil at the end of the
// reader, and when the writer returns errRangeWritten. It checks ctx before each chunk
// and returns its cause.
func copyLines(ctx context.Context, to io.Writer, from io.Reader) error {
	p := make([]byte, 64<<10)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := from.Read(p)
		if _, err := to.Write(p[:n]); errors.Is(err, errRangeWritten) {
			return nil
		} else if err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// errRangeWritten is the error by which a lineRange stops copyLines. No function of this
// package returns it to its caller.
var errRangeWritten = errors.New("enough lines are written")

// A lineRange is a writer that forwards a range of lines to another writer. It
// buffers nothing.
type lineRange struct {
	to      io.Writer
	skip    int64 // lines left to skip
	left    int64 // lines left to forward, if bounded
	bounded bool  // false: forward all lines after the skipped ones
}

// Write forwards the part of p that lies in the range of lines. After it has forwarded
// the last line of the range it returns len(p) and errRangeWritten.
func (w *lineRange) Write(p []byte) (int, error) {
	n := len(p)
	for w.skip > 0 && len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			return n, nil
		}
		p = p[end+1:]
		w.skip--
	}
	if !w.bounded {
		_, err := w.to.Write(p)
		return n, err
	}
	for w.left > 0 && len(p) > 0 {
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			_, err := w.to.Write(p)
			return n, err
		}
		if _, err := w.to.Write(p[:end]); err != nil {
			return n, err
		}
		p = p[end:]
		w.left--
	}
	if w.left == 0 {
		return n, errRangeWritten
	}
	return n, nil
}
