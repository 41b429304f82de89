package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/spf13/cobra"
)

// A page selects lines of an output, or its description.
type page struct {
	offset int64 // number of the first line, from 1
	limit  int64 // number of lines; 0: all
	stat   bool  // print the description in place of the bytes
}

// outputCommand returns the command ledger output.
func (a *app) outputCommand() *cobra.Command {
	var p page
	cmd := &cobra.Command{
		Use: "output REF", Short: "Print an output that is kept whole, or some lines of it",
		Long: `Print an output that is kept whole, as it was kept: bytes, whatever the format.
REF is output://SETTLEMENT/CHANNEL as a preview and ledger call show print it,
or a call that has one output. With --stat, say what is known of it instead.`,
		Example: "  ledger output output://evt_01JD…/text\n  ledger output @last --offset 2000 --limit 100\n  ledger output toolu_01A --stat -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fault.Usage("one reference is needed: ledger output REF")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.printOutput(cmd.Context(), s, args[0], p) })
		},
	}
	cmd.Flags().Int64Var(&p.offset, "offset", 1, "the first line to print")
	cmd.Flags().Int64Var(&p.limit, "limit", 0, "how many lines to print (0: all)")
	cmd.Flags().BoolVar(&p.stat, "stat", false, "say what is known of the output, without its bytes")
	return cmd
}

// An outputRow is the description of an output that --stat prints.
type outputRow struct {
	domain.Retained
	Settlement domain.EventID `json:"settlement"` // the event that names the output
	Channel    string         `json:"channel"`    // the name of the output within its settlement, such as text
}

// printOutput prints a page of the output that id refers to, or its description.
func (a *app) printOutput(ctx context.Context, s *stores.Store, id string, p page) error {
	if p.offset < 1 || p.limit < 0 {
		return fault.Usage("--offset counts lines from 1, and --limit is not below zero")
	}
	ref, err := query.OutputRef(ctx, s, id)
	if err != nil {
		return err
	}
	o, err := s.Outputs.Open(ctx, ref)
	if err != nil {
		return err
	}
	defer o.Close()
	if p.stat {
		row := outputRow{o.Retained(), ref.Settlement(), ref.Channel().String()}
		return a.Object(row, func() {
			a.Fields("output", ref.String(), "size", render.Bytes(row.Bytes), "lines", fmt.Sprint(row.Lines), "media type", render.Printable(row.MIME), "sha256", row.SHA256)
		})
	}
	return a.printPage(ctx, o, p)
}

// printPage copies the lines of a page to the results in chunks. On a terminal it
// then prints a hint with the offset of the next page.
func (a *app) printPage(ctx context.Context, o remote.Reader, p page) error {
	lines := o.Retained().Lines
	if p.offset > lines {
		f := fault.Usage("line %d is behind the end: %s has %s", p.offset, o.Retained().Ref, render.Count(int(lines), "line"))
		f.Hint = "name an --offset from 1 on"
		return f
	}
	window := &lineWindow{to: a.Out, skip: p.offset - 1, left: p.limit, bounded: p.limit > 0}
	if err := pour(ctx, window, o); err != nil {
		return err
	}
	if next := p.offset + p.limit; window.bounded && next <= lines && a.Terminal {
		fmt.Fprintf(a.Err, "hint: %d more lines: --offset %d\n", lines-next+1, next)
	}
	return nil
}

// pour copies from to to, until from ends or to returns errEnough. It checks ctx
// before each chunk and returns its cause.
func pour(ctx context.Context, to io.Writer, from io.Reader) error {
	p := make([]byte, 64<<10)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := from.Read(p)
		if _, err := to.Write(p[:n]); errors.Is(err, errEnough) {
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

// errEnough is returned by a lineWindow to stop pour. It never leaves this file.
var errEnough = errors.New("enough lines are written")

// A lineWindow is a writer that forwards a range of lines to another writer. It
// buffers nothing.
type lineWindow struct {
	to      io.Writer
	skip    int64 // lines left to skip
	left    int64 // lines left to forward, if bounded
	bounded bool  // false: forward all lines after the skipped ones
}

// Write forwards the part of p that lies in the range. It returns errEnough together
// with len(p) once it has forwarded the last line.
func (w *lineWindow) Write(p []byte) (int, error) {
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
		return n, errEnough
	}
	return n, nil
}
