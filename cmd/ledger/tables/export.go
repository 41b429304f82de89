package tables

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/resumable"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// Formats are the values of --format.
var Formats = []string{"parquet", "csv", "jsonl"}

// Tables are the tables that [Export] writes.
var Tables = []string{"calls", "turns", "registrations"}

// tableVersion is the version of the columns. It rises when a column changes its meaning or is
// removed; a new column does not change it.
const tableVersion = 1

// A Config says where an export goes and how.
type Config struct {
	*render.Printer
	To      string // a path, or - for the standard output
	Format  string // of Formats; empty: the one that the end of To names
	NoText  bool   // calls have no inputs, texts and details
	Options resumable.Options
	// Hide hides the secrets of a text. Nil leaves all texts as they are.
	Hide func(string) string

	maxRows, maxBytes int // in place of those of newWriter, in tests; 0: those
}

// Exported is the JSON result of ledger export calls, turns and registrations.
type Exported struct {
	Table     string          `json:"table"`
	Store     string          `json:"store"`
	File      string          `json:"file"`
	Format    string          `json:"format"`
	Through   events.Position `json:"through"` // the end of the log when the export began
	Rows      int64           `json:"rows"`
	Continued int64           `json:"continued"` // number of rows that an earlier run had written
	Bytes     int64           `json:"bytes"`     // of the file
}

// A content identifies the content of a file for package resumable.
type content struct {
	Export  string         `json:"export"`
	Version int            `json:"version"`
	Format  string         `json:"format"`
	Store   string         `json:"store"` // the first event of the log, which identifies it
	Filter  map[string]any `json:"filter"`
	NoText  bool           `json:"no_text"`
	Hidden  bool           `json:"hidden"` // secrets are hidden
}

// A start is what an export chooses at its beginning.
type start struct {
	selection
	Through events.Position `json:"through"`
	Event   string          `json:"event"` // the event at that position
	Time    string          `json:"time"`  // its time
}

// A state is the state of an export at a checkpoint.
type state struct {
	Rows  int64       `json:"rows"`
	Group *groupState `json:"group,omitempty"` // of Parquet
}

// An emitter takes a row and the position of its first event.
type emitter[T any] func(row T, position int64) error

// A table is a kind of rows. rows passes the selected rows to emit, without the first skip
// ones.
type table[T any] struct {
	name   string
	fields map[string]string
	rows   func(ctx context.Context, c *Config, s *stores.Store, r *index.Snapshot, by selection, skip int64, emit emitter[T]) error
}

// Export writes the rows of one of Tables that filter selects, and prints the result unless it
// writes to the standard output.
func Export(ctx context.Context, c Config, s *stores.Store, r *index.Snapshot, name string, filter Filter) error {
	switch name {
	case "calls":
		return export(ctx, c, s, r, table[callRow]{name, callFields, callRows}, filter)
	case "turns":
		return export(ctx, c, s, r, table[turnRow]{name, turnFields, turnRows}, filter)
	case "registrations":
		return export(ctx, c, s, r, table[registrationRow]{name, registrationFields, registrationRows}, filter)
	}
	return fault.Usage("there is no table %q: the tables are %s", name, strings.Join(Tables, ", "))
}

// callRows passes the rows of calls, in the order of their first events.
func callRows(ctx context.Context, c *Config, s *stores.Store, r *index.Snapshot, by selection, skip int64, emit emitter[callRow]) error {
	by.add("+asked_time IS NOT NULL")
	var batch []calls.Call
	flush := func() error {
		visit := func(full fullCall) error {
			position, _ := full.AskedAt.Position.Parts()
			return emit(newCallRow(full, c.Hide, !c.NoText), int64(position))
		}
		var err error
		if c.NoText {
			for _, one := range batch {
				err = errors.Join(err, visit(newFullCall(one)))
			}
		} else {
			err = eachFull(ctx, s, batch, visit)
		}
		batch = batch[:0]
		return err
	}
	err := r.EachCall(by.Condition, by.Args, func(one calls.Call) error {
		if skip > 0 {
			skip--
			return nil
		}
		if batch = append(batch, one); len(batch) < batchCalls {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// turnRows passes the rows of turns, in the order of their first events.
func turnRows(_ context.Context, c *Config, _ *stores.Store, r *index.Snapshot, by selection, skip int64, emit emitter[turnRow]) error {
	return eachCells(c, r, turnStatement, by, skip, func(row *cells) error {
		turn := newTurnRow(row)
		return errors.Join(row.err, emit(turn, turn.Position))
	})
}

// registrationRows passes the rows of registrations, in the order of their IDs.
func registrationRows(_ context.Context, c *Config, _ *stores.Store, r *index.Snapshot, by selection, skip int64, emit emitter[registrationRow]) error {
	return eachCells(c, r, registrationStatement, by, skip, func(row *cells) error {
		registration := newRegistrationRow(row)
		return errors.Join(row.err, emit(registration, registration.RegisteredAt))
	})
}

// eachCells passes the rows of a statement to visit, without the first skip ones.
func eachCells(c *Config, r *index.Snapshot, statement string, by selection, skip int64, visit func(*cells) error) error {
	if by.Condition == "" {
		by.Condition = "1"
	}
	return r.Select(fmt.Sprintf(statement, by.Condition), by.Args, func(row []driver.Value) error {
		if skip > 0 {
			skip--
			return nil
		}
		return visit(&cells{row: row, hide: c.Hide})
	})
}

// format returns the format of the export, and the compression of its file.
func (c *Config) format() (string, resumable.Compression, error) {
	by, name := resumable.CompressionOf(c.To)
	format := c.Format
	if format == "" {
		format = strings.TrimPrefix(filepath.Ext(name), ".")
		if c.To == "-" || !slices.Contains(Formats, format) {
			return "", "", fault.Usage("name the format: --format %s, or a file with one of these ends", strings.Join(Formats, ", "))
		}
	}
	switch {
	case !slices.Contains(Formats, format):
		return "", "", fault.Usage("--format: %q is not %s", format, strings.Join(Formats, ", "))
	case format == "parquet" && by != resumable.Plain:
		return "", "", fault.Usage("--to: a Parquet file is compressed in itself; name one without .gz and .zst")
	case format == "parquet" && c.To == "-" && c.Terminal:
		return "", "", fault.Usage("a Parquet file is not for a terminal: name a file with --to, or redirect the output")
	}
	return format, by, nil
}

// newStart returns the start of an export, and the first event of the log.
func newStart(p *render.Printer, r *index.Snapshot, filter Filter, fields map[string]string) (at start, first string, err error) {
	if at.selection, err = filter.compile(p, r, fields); err != nil {
		return at, "", err
	}
	first, err = at.readEnd(r)
	return at, first, err
}

// readEnd sets the end of the log that an index has read, and returns the first event.
func (at *start) readEnd(r *index.Snapshot) (first string, err error) {
	err = r.Select("SELECT first_event, last_position, last_event, last_time FROM index_state", nil, func(row []driver.Value) error {
		c := &cells{row: row}
		var position string
		first, position, at.Event, at.Time = c.name(), c.name(), c.name(), c.name()
		if position == "" {
			return nil
		}
		at.Through, err = events.ParsePosition(position)
		return err
	})
	return first, err
}

// export writes a table.
func export[T any](ctx context.Context, c Config, s *stores.Store, r *index.Snapshot, t table[T], filter Filter) (err error) {
	format, by, err := c.format()
	if err != nil {
		return err
	}
	hidden := c.Hide != nil
	if !hidden {
		c.Hide = func(text string) string { return text }
	}
	now, first, err := newStart(c.Printer, r, filter, t.fields)
	if err != nil {
		return err
	}
	identity := content{t.name, tableVersion, format, first, filter.given(), c.NoText, hidden}
	w := newWriter[T](format)
	w.maxRows, w.maxBytes = cmp.Or(c.maxRows, w.maxRows), cmp.Or(c.maxBytes, w.maxBytes)
	w.progress = c.Progress()
	defer w.progress.End()
	if c.To == "-" {
		w.sink = resumable.NewStream(c.Out, by)
		if err = w.run(ctx, &c, s, r, t, identity, now); w.rows > 0 && errors.Is(err, index.ErrDamagedIndex) {
			// The caller would repair the index and write all rows once more.
			return fault.WithHint(fmt.Errorf("%s after %d rows", err, w.rows), "ledger index rebuild fills it anew")
		}
		return err
	}
	f, err := resumable.Open(c.To, identity, c.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w.sink = f
	begun, err := w.resume(f, now)
	if err != nil {
		return err
	}
	row := Exported{Table: t.name, Store: s.Name, File: c.To, Format: format, Through: begun.Through, Continued: w.rows}
	if row.Continued > 0 {
		fmt.Fprintf(c.Err, "continuing %s after %s\n", render.Printable(c.To), render.Count(int(row.Continued), "row"))
	}
	write := func(r *index.Snapshot) error {
		at := begun
		if _, err := at.readEnd(r); err != nil {
			return err
		}
		if at.Event != begun.Event {
			return fmt.Errorf("%w: the log has another event at position %s", resumable.ErrOtherContent, begun.Through)
		}
		return w.run(ctx, &c, s, r, t, identity, begun)
	}
	if begun.Event == now.Event || begun.Through.IsZero() {
		err = write(r)
	} else {
		err = withPast(ctx, c.Printer, s, begun.Through, write)
	}
	if err != nil {
		return err
	}
	w.progress.End()
	row.Rows, row.Bytes = w.rows, f.Bytes()
	return c.Object(row, func() {
		c.Line("%s of %s written to %s, %s.", render.Count(int(row.Rows), "row"), row.Table, render.Printable(row.File), render.Bytes(row.Bytes))
		c.Line("They are those of the log up to position %s, its end when the export began.", row.Through)
	})
}

// A writer writes the rows of a table in a format.
type writer[T any] struct {
	format   string
	columns  []column
	sink     resumable.Sink
	progress *render.ProgressBar
	rows     int64 // written, or pending
	parquet  *parquetFile[T]
	pending  []T    // the rows of the next row group
	size     int    // of the texts of pending, or of the lines since the last checkpoint
	line     []byte // memory of a line, used again
	maxRows  int    // of a row group
	maxBytes int    // of size
}

// The bounds of what is written between two checkpoints.
const (
	maxGroupRows  = 65_536
	maxGroupBytes = 32 << 20
	maxLinesBytes = 8 << 20
)

// newWriter returns a writer without a sink.
func newWriter[T any](format string) *writer[T] {
	w := &writer[T]{format: format, columns: columnsOf(reflect.TypeFor[T]()), maxRows: maxGroupRows, maxBytes: maxLinesBytes}
	if format == "parquet" {
		w.parquet, w.maxBytes = newParquetFile[T](), maxGroupBytes
	}
	return w
}

// resume continues an interrupted export, or begins one with now. It returns the start.
func (w *writer[T]) resume(f *resumable.File, now start) (start, error) {
	begun, states, ok := f.Resumed()
	if !ok {
		return now, f.Begin(now)
	}
	var at start
	if err := json.Unmarshal(begun, &at); err != nil {
		return at, err
	}
	for _, text := range states {
		var s state
		if err := json.Unmarshal(text, &s); err != nil {
			return at, err
		}
		w.rows = s.Rows
		if s.Group != nil && w.parquet != nil {
			if err := w.parquet.resume(*s.Group); err != nil {
				return at, err
			}
		}
	}
	return at, nil
}

// UnmarshalJSON decodes a start, whose selection has a decoder of its own.
func (at *start) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &at.selection); err != nil {
		return err
	}
	end := struct {
		Through *events.Position `json:"through"`
		Event   *string          `json:"event"`
		Time    *string          `json:"time"`
	}{&at.Through, &at.Event, &at.Time}
	return json.Unmarshal(data, &end)
}

// run writes the rows that are missing, and the end of the file.
func (w *writer[T]) run(ctx context.Context, c *Config, s *stores.Store, r *index.Snapshot, t table[T], of content, at start) error {
	if w.format == "csv" && w.rows == 0 {
		if _, err := w.sink.Write(appendHead(nil, w.columns)); err != nil {
			return err
		}
	}
	unit := func(n int64) string { return render.Count(int(n), "row") }
	err := t.rows(ctx, c, s, r, at.selection, w.rows, func(row T, position int64) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		w.progress.Show("export", unit, w.rows, uint64(position), stores.Sequence(at.Through))
		return w.add(row)
	})
	if err != nil {
		return err
	}
	if w.parquet != nil {
		if len(w.pending) > 0 {
			if err := w.checkpoint(); err != nil {
				return err
			}
		}
		query, err := json.Marshal(of.Filter)
		if err != nil {
			return err
		}
		err = w.parquet.finish(w.sink, [][2]string{
			{"ledger.table", of.Export}, {"ledger.table_version", fmt.Sprint(of.Version)}, {"ledger.store", of.Store}, {"ledger.query", string(query)},
			{"ledger.through", at.Through.String()}, {"ledger.through_event", at.Event}, {"ledger.through_time", at.Time}, {"ledger.no_text", fmt.Sprint(of.NoText)}, {"ledger.hidden", fmt.Sprint(of.Hidden)},
		})
		if err != nil {
			return err
		}
	}
	return w.sink.Finish()
}

// add writes a row.
func (w *writer[T]) add(row T) (err error) {
	w.rows++
	if w.parquet != nil {
		w.pending = append(w.pending, row)
		w.size += textSize(reflect.ValueOf(row))
		if len(w.pending) < w.maxRows && w.size < w.maxBytes {
			return nil
		}
		return w.checkpoint()
	}
	if w.format == "csv" {
		w.line, err = appendCSV(w.line[:0], w.columns, reflect.ValueOf(row))
	} else {
		w.line, err = appendJSON(w.line[:0], w.columns, reflect.ValueOf(row))
	}
	if err != nil {
		return err
	}
	if _, err := w.sink.Write(w.line); err != nil {
		return err
	}
	if w.size += len(w.line); w.size < w.maxBytes {
		return nil
	}
	return w.checkpoint()
}

// textSize returns the bytes of the texts of a row.
func textSize(row reflect.Value) (n int) {
	for i := range row.NumField() {
		if s, ok := value(row.Field(i)).(string); ok {
			n += len(s)
		}
	}
	return n
}

// checkpoint makes the rows so far durable, those of a row group first.
func (w *writer[T]) checkpoint() error {
	s := state{Rows: w.rows}
	if w.parquet != nil {
		group, err := w.parquet.group(w.sink, w.pending)
		if err != nil {
			return err
		}
		clear(w.pending)
		s.Group, w.pending = &group, w.pending[:0]
	}
	w.size = 0
	return w.sink.Checkpoint(s)
}
