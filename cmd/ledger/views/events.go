package views

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/charmbracelet/x/ansi"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// ListEvents prints the selected events behind the position after, in the order of the log and
// at most limit of them (0: all). It ends a JSON array even after an error.
func ListEvents(ctx context.Context, out *render.Printer, s *stores.Store, filter query.EventFilter, after string, limit int) error {
	position, err := positionFlag(after)
	if err != nil {
		return err
	}
	if limit < 0 {
		return fault.Usage("--limit: %d is below zero", limit)
	}
	if err := filter.When.Resolve(out); err != nil {
		return err
	}
	if err := filter.Resolve(ctx, s); err != nil {
		return err
	}
	w := newEventWriter(out)
	err = writeEvents(out, w, query.Entries(ctx, s, position, filter), limit)
	return errors.Join(w.end(), err)
}

// writeEvents writes at most limit entries (0: all) to w. It reports each damaged place on the
// standard error, goes on, and returns an error with their number at the end.
func writeEvents(out *render.Printer, w *eventWriter, entries iter.Seq2[events.Entry, error], limit int) error {
	n, damaged := 0, 0
	for e, err := range entries {
		if errors.Is(err, events.ErrDamaged) && e.ID.IsZero() {
			damaged++
			out.WriteFault(fault.Of(err))
			continue
		}
		if err != nil && !errors.Is(err, events.ErrDamaged) {
			return err
		}
		if err != nil {
			damaged++
			out.WriteFault(fault.Of(err))
		}
		if err := w.write(e, err); err != nil {
			return err
		}
		if n++; n == limit {
			break
		}
	}
	return damageError(damaged)
}

// damageError returns the error for n damaged places of the log, or nil for 0.
func damageError(n int) error {
	if n == 0 {
		return nil
	}
	return &fault.Error{Exit: fault.ExitFailed, Code: "damaged", Err: fmt.Errorf("read events: %d places of the log are damaged", n), Hint: "ledger verify lists them"}
}

// positionFlag parses --after. An empty text is the zero position, before the first record.
func positionFlag(text string) (events.Position, error) {
	if text == "" {
		return events.Position{}, nil
	}
	position, err := events.ParsePosition(text)
	if err != nil {
		return position, fault.Usage("--after: %q is not a position, such as 1204", text)
	}
	return position, nil
}

// An eventWriter writes events one at a time, in the format of its printer. The columns of its
// table have fixed widths, since it does not know the later rows.
type eventWriter struct {
	out   *render.Printer
	lines bool // write JSON Lines; tail -f with -o json sets it too
	width int  // of the terminal, in columns; 0: the output is no terminal
	n     int  // the number of events written
}

// newEventWriter returns an eventWriter for the format and the terminal of out.
func newEventWriter(out *render.Printer) *eventWriter {
	return &eventWriter{out: out, lines: out.Format == render.AsJSONLines, width: out.Columns()}
}

// The layout of a table row. On a terminal with fewer than eventWidth columns a row has only
// position, kind and description.
const (
	eventLine  = "%8s  %-12s  %-12s  %4s  %-19s  %s"
	eventWidth = 80
)

// line returns a row of the table, truncated to the width of the terminal,
// if there is one.
func (w *eventWriter) line(position, time, stream, revision, kind, what string) string {
	switch {
	case w.width == 0:
		return fmt.Sprintf(eventLine, position, time, stream, revision, kind, what)
	case w.width < eventWidth:
		return ansi.Truncate(fmt.Sprintf("%s %s %s", position, kind, what), w.width, "…")
	}
	return ansi.Truncate(fmt.Sprintf(eventLine, position, time, stream, revision, kind, what), w.width, "…")
}

// write writes one event. damage is the error of decoding its entry, or nil.
func (w *eventWriter) write(e events.Entry, damage error) error {
	w.n++
	switch {
	case w.lines:
		return w.out.JSONLine(newEventRow(e, damage))
	case w.out.Format == render.AsJSON:
		data, err := render.EncodeJSON(newEventRow(e, damage))
		if err == nil {
			w.out.Line("%s%s", map[bool]string{true: "[", false: ","}[w.n == 1], data)
		}
		return err
	}
	if w.n == 1 {
		w.out.Line("%s", w.out.Styled(render.Bold, w.line("POSITION", "TIME", "STREAM", "REV", "KIND", "WHAT")))
	}
	what := w.out.Styled(render.Red, "damaged")
	if damage == nil {
		v, err := events.Decode(e)
		if err != nil {
			return err
		}
		what = render.OneLine(describe(v.Event), render.TextWidth+20)
	}
	w.out.Line("%s", w.line(e.Position.String(), w.out.ShortTime(e.Time), StreamName(e.Stream), fmt.Sprint(e.Revision), render.OneLine(e.Kind, 40), what))
	return nil
}

// end closes a JSON array, or prints a message in place of an empty table.
func (w *eventWriter) end() error {
	switch {
	case w.lines:
	case w.out.Format == render.AsJSON && w.n == 0:
		w.out.Line("[]")
	case w.out.Format == render.AsJSON:
		w.out.Line("]")
	case w.n == 0:
		w.out.Line("No events.")
	}
	return nil
}

// StreamName returns the name of a stream for tables: the shortened ID of its session, layer
// or process, or else its name.
func StreamName(s events.Stream) string {
	if id, ok := s.Session(); ok {
		return render.ShortID(id)
	}
	if id, ok := s.Layer(); ok {
		return render.ShortID(id)
	}
	if id, ok := s.Process(); ok {
		return render.ShortID(id)
	}
	return render.OneLine(string(s), 40)
}

// A Tail holds the flags of the tail commands.
type Tail struct {
	Lines  int  // the number of existing events to show
	Follow bool // then show new events until interrupted
}

// TailEvents writes the last t.Lines selected events and, with t.Follow, the events behind them
// until ctx ends or the reader of the output leaves. It reads the head of the log first, so
// that follow neither repeats nor skips an event.
//
// TailEvents reports each record up to the head that the store cannot read, and each written
// event that does not decode, on the standard error. Without t.Follow it then returns a
// fault.Error with the code "damaged", as ListEvents does.
func TailEvents(ctx context.Context, out *render.Printer, o *stores.Opener, s *stores.Store, filter query.EventFilter, t Tail) error {
	if t.Lines < 0 {
		return fault.Usage("-n: %d is below zero", t.Lines)
	}
	end, err := s.Head(ctx)
	if err != nil {
		return err
	}
	latest, damaged, err := lastEntries(out, query.Entries(ctx, s, events.Position{}, filter), end, t.Lines)
	if err != nil {
		return err
	}
	w := newEventWriter(out)
	// A JSON array has to end, and a followed log does not.
	w.lines = w.lines || t.Follow && out.Format == render.AsJSON
	for _, e := range latest {
		_, damage := events.Decode(e)
		if damage != nil {
			damaged++
			out.WriteFault(fault.Of(damage))
		}
		if err := w.write(e, damage); err != nil {
			return err
		}
	}
	if !t.Follow {
		return errors.Join(w.end(), damageError(damaged))
	}
	ctx, stop := out.WhileRead(ctx)
	defer stop()
	return follow(ctx, out, o, s, end, filter, w)
}

// lastEntries returns the last n entries at or before end, and the number of records that the
// store cannot read. It reports each of these on the standard error and leaves it out.
func lastEntries(out *render.Printer, entries iter.Seq2[events.Entry, error], end events.Position, n int) (latest []events.Entry, unreadable int, err error) {
	for e, err := range entries {
		switch {
		case err != nil && !errors.Is(err, events.ErrDamaged):
			return nil, 0, err
		case e.ID.IsZero():
			unreadable++
			out.WriteFault(fault.Of(err))
			continue
		case e.Position.Compare(end) > 0:
			return latest[max(0, len(latest)-n):], unreadable, nil
		}
		if latest = append(latest, e); len(latest) > 2*n+100 { // trim in batches, for an amortized constant cost per entry
			latest = slices.Delete(latest, 0, len(latest)-n)
		}
	}
	return latest[max(0, len(latest)-n):], unreadable, nil
}

// follow writes the selected events behind a position until ctx ends. It reports once that it
// has caught up, and flushes the output each time it does. An interruption is the normal end:
// follow returns it as an error without a text.
func follow(ctx context.Context, out *render.Printer, o *stores.Opener, s *stores.Store, after events.Position, filter query.EventFilter, w *eventWriter) error {
	reported := false
	caughtUp := func(at events.Position) {
		if !reported {
			reportCaughtUp(out, w, at)
		}
		reported = true
		_ = out.Out.Flush() // the error stays in the writer, and is returned with the next line
	}
	for e, err := range o.Follow(ctx, s, after, caughtUp) {
		if err != nil {
			return interruptedFollow(err)
		}
		v, damage := events.Decode(e)
		if !filter.Matches(e, v) {
			continue
		}
		if err := w.write(e, damage); err != nil {
			return err
		}
	}
	return nil
}

// reportCaughtUp reports that follow has caught up: as a record {"type":"sync"} among JSON Lines, and
// otherwise as a line on the standard error.
func reportCaughtUp(out *render.Printer, w *eventWriter, at events.Position) {
	if !w.lines {
		_ = out.Out.Flush()
		fmt.Fprintln(out.Err, "— caught up, following —")
		return
	}
	_ = out.JSONLine(struct {
		Type     string          `json:"type"`
		Position events.Position `json:"position"`
	}{"sync", at}) // encoding a position cannot fail
}

// interruptedFollow returns the error of a follow. It marks an interruption as quiet: the exit
// status reports it, and no error text is printed.
func interruptedFollow(err error) error {
	if !errors.Is(err, domain.ErrInterrupted) {
		return err
	}
	f := *fault.Of(err)
	f.Quiet = true
	return &f
}
