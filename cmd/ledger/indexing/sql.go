package indexing

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/index"
)

// Options are the flags of ledger sql.
type Options struct {
	NoWait bool // read the index as it is
	CSV    bool // write CSV in place of a table
}

// maxTableRows is the largest number of rows of a table for people, whose rows are in memory
// until the widths of the columns are known.
const maxTableRows = 1000

// SQL runs a statement over the index of the store that o names and prints the rows. CSV and
// a JSON format exclude each other.
func SQL(ctx context.Context, p *render.Printer, o *stores.Opener, statement string, opts Options) error {
	if opts.CSV && p.Format != render.AsTable {
		return fault.Usage("--csv and --output %s are two formats: give one of them", p.Format)
	}
	return openIndex(ctx, o, func(s *stores.Store, x *index.Index) error {
		if opts.NoWait {
			if err := warnBehind(ctx, p, s, x); err != nil {
				return err
			}
		} else if err := catchUp(ctx, p, s, x); err != nil {
			return err
		}
		printed, err := run(ctx, p, x, statement, opts)
		if errors.Is(err, index.ErrDamagedIndex) && !printed && !opts.NoWait {
			if err := rebuild(ctx, p, s, x, (*index.Index).Rebuild); err != nil {
				return err
			}
			_, err = run(ctx, p, x, statement, opts)
		}
		return reported(err)
	})
}

// warnBehind says on the standard error how far the index is behind the log.
func warnBehind(ctx context.Context, p *render.Printer, s *stores.Store, x *index.Index) error {
	at, err := x.Status(ctx, s.Ledger)
	if err != nil {
		return err
	}
	switch at.State {
	case index.Behind:
		fmt.Fprintf(p.Err, "the index is behind the log: it has the events through position %s of %s\n", at.Position, at.Head)
	case index.Unfit:
		fmt.Fprintf(p.Err, "the index does not belong to this log or program, and its rows may not be true: %s\n", render.Printable(at.Reason))
	}
	return nil
}

// run prints the rows of a statement. printed reports whether a row is printed.
func run(ctx context.Context, p *render.Printer, x *index.Index, statement string, opts Options) (printed bool, err error) {
	rows, err := x.Query(ctx, statement)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var w rowWriter
	switch {
	case opts.CSV:
		w = &csvRows{w: csv.NewWriter(p.Out)}
	case p.Format == render.AsTable:
		w = &tableRows{p: p}
	default:
		w = &jsonRows{p: p}
	}
	if err := w.begin(rows.Columns); err != nil {
		return false, err
	}
	for row, err := range rows.All() {
		if err == nil {
			printed = w.streams()
			err = w.row(row)
		}
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			return printed, err
		}
	}
	return true, w.end()
}

// errEnough: the writer takes no further rows.
var errEnough = errors.New("table has enough rows")

// A rowWriter writes the rows of a statement in one format.
type rowWriter interface {
	begin(columns []string) error
	// streams reports whether row writes before end.
	streams() bool
	// row writes a row, which belongs to the caller. It returns errEnough if the writer takes
	// no further rows.
	row(row []any) error
	end() error
}

// tableRows writes a table for people.
type tableRows struct {
	p     *render.Printer
	table render.Table
	more  bool // there are rows that the table does not have
}

func (t *tableRows) begin(columns []string) error {
	t.table.Empty = "No rows."
	for _, name := range columns {
		t.table.Head = append(t.table.Head, "~"+render.OneLine(name, render.TextWidth))
	}
	return nil
}

func (t *tableRows) streams() bool { return false }

func (t *tableRows) row(row []any) error {
	if len(t.table.Rows) == maxTableRows {
		t.more = true
		return errEnough
	}
	cells := make([]string, len(row))
	for i, v := range row {
		cells[i] = render.OneLine(cellText(v), render.TextWidth)
	}
	t.table.Add(cells...)
	return nil
}

func (t *tableRows) end() error {
	t.p.Table(t.table)
	if t.more {
		fmt.Fprintf(t.p.Err, "there are more than %d rows: add a LIMIT, or print them with --csv or -o jsonl\n", maxTableRows)
	}
	return nil
}

// cellText returns a value as text. Null is empty.
func cellText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []byte:
		return fmt.Sprintf("x'%x'", v)
	}
	return fmt.Sprint(v)
}

// csvRows writes CSV with a line of names.
type csvRows struct{ w *csv.Writer }

func (c *csvRows) begin(columns []string) error { return c.w.Write(columns) }

func (c *csvRows) streams() bool { return true }

func (c *csvRows) row(row []any) error {
	cells := make([]string, len(row))
	for i, v := range row {
		cells[i] = cellText(v)
	}
	return c.w.Write(cells)
}

func (c *csvRows) end() error {
	c.w.Flush()
	return c.w.Error()
}

// jsonRows writes an object for each row, with its columns in their order.
type jsonRows struct {
	p       *render.Printer
	columns [][]byte // the names, as JSON
	rows    int
}

func (j *jsonRows) begin(columns []string) error {
	for i, name := range columns {
		if slices.Contains(columns[:i], name) {
			return fault.Usage("sql: two columns have the name %q: name one with AS, because keys of a JSON object are unique", name)
		}
		encoded, err := render.EncodeJSON(name)
		if err != nil {
			return err
		}
		j.columns = append(j.columns, encoded)
	}
	return nil
}

func (j *jsonRows) streams() bool { return true }

func (j *jsonRows) row(row []any) error {
	var b bytes.Buffer
	for i, v := range row {
		separator := ","
		if i == 0 {
			separator = "{"
		}
		value, err := render.EncodeJSON(v)
		if err != nil {
			return err
		}
		b.WriteString(separator)
		b.Write(j.columns[i])
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	switch {
	case j.p.Format == render.AsJSONLines:
	case j.rows == 0:
		j.p.Out.WriteString("[\n  ")
	default:
		j.p.Out.WriteString(",\n  ")
	}
	j.rows++
	if j.p.Format == render.AsJSONLines {
		j.p.Line("%s", b.Bytes())
	} else {
		j.p.Out.Write(b.Bytes())
	}
	return nil
}

func (j *jsonRows) end() error {
	switch {
	case j.p.Format == render.AsJSONLines:
	case j.rows == 0:
		j.p.Line("[]")
	default:
		j.p.Line("\n]")
	}
	return nil
}
