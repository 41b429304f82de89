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

// ListEvents prints the events after the position in the text after that the filter
// selects, in the order of the log. It prints at most limit events, or all events if
// limit is 0. It closes a JSON array even after an error.
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

// writeEvents writes at most limit entries to w, or all entries if limit is 0. It
// reports each damaged place of the log on the standard error and continues. At the end
// it returns an error with the number of damaged places.
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

// write writes one event. damage is the error with which the entry failed to decode, or
// nil.
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
		what = render.OneLine(Describe(v.Event), render.TextWidth+20)
	}
	w.out.Line("%s", w.line(e.Position.String(), w.out.ShortTime(e.Time), StreamName(e.Stream), fmt.Sprint(e.Revision), render.OneLine(e.Kind, 40), what))
	return nil
}

// end closes a JSON array. If no event was written to a table, it prints a message.
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

// StreamName returns a short name of a stream for tables. It is the shortened ID of the
// stream's session, layer or process. For any other stream it is the name of the stream.
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

// TailEvents writes the last t.Lines events that the filter selects. With t.Follow it
// then writes later events until ctx ends or the reader of the output closes the pipe.
// It reads the position of the last record first, so that following neither repeats nor
// skips an event.
//
// It reads backward. If it meets a record that the store cannot read, it reports each such
// record of the log on the standard error, as it does each written event that does not
// decode, and returns a fault.Error with the code "damaged", unless t.Follow is set.
func TailEvents(ctx context.Context, out *render.Printer, o *stores.Opener, s *stores.Store, filter query.EventFilter, t Tail) error {
	if t.Lines < 0 {
		return fault.Usage("-n: %d is below zero", t.Lines)
	}
	end, err := s.Head(ctx)
	if err != nil {
		return err
	}
	damaged := 0
	latest, err := query.LastEntries(ctx, s, filter, end, t.Lines)
	if errors.Is(err, events.ErrDamaged) {
		latest, damaged, err = lastEntries(out, query.Entries(ctx, s, events.Position{}, filter), end, t.Lines)
	}
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

// lastEntries returns the last n entries up to the position end. unreadable is the
// number of records that the store cannot read: lastEntries reports each of them on the
// standard error and omits it from latest.
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

// follow writes the selected events after a position until ctx ends. Each time it has
// written all events of the log it flushes the output; the first time it also prints a
// report. An interruption is the normal end: follow returns it as an error whose text is
// not printed.
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

// reportCaughtUp reports that follow has written all events of the log. With JSON Lines
// the report is a line {"type":"sync"} with the position. Otherwise it is a text on the
// standard error.
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

// interruptedFollow returns err, the error that ended a follow. If err is an
// interruption, the result is marked as quiet: the exit status reports it and no error
// text is printed.
func interruptedFollow(err error) error {
	if !errors.Is(err, domain.ErrInterrupted) {
		return err
	}
	f := *fault.Of(err)
	f.Quiet = true
	return &f
}
