package main

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
	"github.com/spf13/cobra"
)

// eventCommand returns the command event: ls and tail.
func (a *app) eventCommand() *cobra.Command {
	return a.group("event", "Events: list them, follow them", a.eventList(), a.eventTail())
}

// eventFilterFlags adds --stream, --kind and --session to cmd, which set the fields of f.
func (a *app) eventFilterFlags(cmd *cobra.Command, f *query.EventFilter) {
	cmd.Flags().StringVar(&f.Stream, "stream", "", "only those of this stream")
	cmd.Flags().StringSliceVar(&f.Kinds, "kind", nil, "only those of this kind; may be given several times")
	cmd.Flags().StringVar(&f.Session, "session", "", "only those of this session, in whatever stream")
	must(cmd.RegisterFlagCompletionFunc("session", a.complete(query.SessionWords)))
	must(cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(events.Kinds(), cobra.ShellCompDirectiveNoFileComp)))
}

// eventList returns the command event ls.
func (a *app) eventList() *cobra.Command {
	var filter query.EventFilter
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "ls", Short: "List events as they are kept, in the order of the log",
		Example: "  ledger event ls --session @last\n  ledger event ls --after 1204 --limit 100 -o jsonl\n  ledger event ls --kind CallSettled -o jsonl | jq .data.outcome",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				return a.listEvents(cmd.Context(), s, filter, after, limit)
			})
		},
	}
	a.eventFilterFlags(cmd, &filter)
	filter.When.AddFlags(cmd, "those appended")
	cmd.Flags().StringVar(&after, "after", "", "only those behind this position")
	cmd.Flags().IntVar(&limit, "limit", 0, "only so many, the first ones (0: all)")
	return cmd
}

// listEvents prints the selected events behind the position after, in the order of the log and
// at most limit of them (0: all). It ends a JSON array even after an error.
func (a *app) listEvents(ctx context.Context, s *stores.Store, filter query.EventFilter, after string, limit int) error {
	position, err := positionFlag(after)
	if err != nil {
		return err
	}
	if limit < 0 {
		return fault.Usage("--limit: %d is below zero", limit)
	}
	if err := filter.When.Resolve(a.Printer); err != nil {
		return err
	}
	if err := filter.Resolve(ctx, s); err != nil {
		return err
	}
	w := a.eventWriter()
	err = a.writeEvents(w, query.Entries(ctx, s, position, filter), limit)
	return errors.Join(w.end(), err)
}

// writeEvents writes at most limit entries (0: all) to w. It reports each damaged place on the
// standard error, goes on, and returns an error with their number at the end.
func (a *app) writeEvents(w *eventWriter, entries iter.Seq2[events.Entry, error], limit int) error {
	n, damaged := 0, 0
	for e, err := range entries {
		if errors.Is(err, events.ErrDamaged) && e.ID.IsZero() {
			damaged++
			a.WriteFault(fault.Of(err))
			continue
		}
		if err != nil && !errors.Is(err, events.ErrDamaged) {
			return err
		}
		if err != nil {
			damaged++
			a.WriteFault(fault.Of(err))
		}
		if err := w.write(e, err); err != nil {
			return err
		}
		if n++; n == limit {
			break
		}
	}
	return damage(damaged)
}

// damage returns the error for n damaged places of the log, or nil for 0.
func damage(n int) error {
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

// An eventWriter writes events one at a time, in the format of the app. The columns of its
// table have fixed widths, since it does not know the later rows.
type eventWriter struct {
	a     *app
	lines bool // write JSON Lines; tail -f with -o json sets it too
	width int  // of the terminal, in columns; 0: the output is no terminal
	n     int  // the number of events written
}

// eventWriter returns an eventWriter for the app's format and terminal.
func (a *app) eventWriter() *eventWriter {
	return &eventWriter{a: a, lines: a.Format == render.AsJSONLines, width: a.Columns()}
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

// write writes one event. The error damage says why the entry does not decode; nil: it does.
func (w *eventWriter) write(e events.Entry, damage error) error {
	w.n++
	switch {
	case w.lines:
		return w.a.JSONLine(eventRowOf(e, damage))
	case w.a.Format == render.AsJSON:
		data, err := render.EncodeJSON(eventRowOf(e, damage))
		if err == nil {
			w.a.Line("%s%s", map[bool]string{true: "[", false: ","}[w.n == 1], data)
		}
		return err
	}
	if w.n == 1 {
		w.a.Line("%s", w.a.Styled(render.Bold, w.line("POSITION", "TIME", "STREAM", "REV", "KIND", "WHAT")))
	}
	what := w.a.Styled(render.Red, "damaged")
	if damage == nil {
		v, err := events.Decode(e)
		if err != nil {
			return err
		}
		what = render.OneLine(said(v.Event), render.TextWidth+20)
	}
	w.a.Line("%s", w.line(e.Position.String(), w.a.ShortTime(e.Time), streamText(e.Stream), fmt.Sprint(e.Revision), render.OneLine(e.Kind, 40), what))
	return nil
}

// end closes a JSON array, or prints a message in place of an empty table.
func (w *eventWriter) end() error {
	switch {
	case w.lines:
	case w.a.Format == render.AsJSON && w.n == 0:
		w.a.Line("[]")
	case w.a.Format == render.AsJSON:
		w.a.Line("]")
	case w.n == 0:
		w.a.Line("No events.")
	}
	return nil
}

// streamText returns the name of a stream for tables: the shortened ID of its session, layer
// or process, or else its name.
func streamText(s events.Stream) string {
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

// A tail holds the flags of the tail commands.
type tail struct {
	last   int  // the number of existing events to show
	follow bool // then show new events until interrupted
}

// flags adds -n and -f to a command.
func (t *tail) flags(cmd *cobra.Command) {
	cmd.Flags().IntVarP(&t.last, "lines", "n", 10, "how many of the last events are shown first")
	cmd.Flags().BoolVarP(&t.follow, "follow", "f", false, "wait for more, until interrupted")
}

// eventTail returns the command event tail.
func (a *app) eventTail() *cobra.Command {
	var filter query.EventFilter
	var t tail
	cmd := &cobra.Command{
		Use: "tail", Short: "Show the last events, and with -f what comes",
		Long: `Show the last events, and with -f follow what comes. Once all that was there is
shown, a line on the standard error says so; with -o json or jsonl a record
{"type":"sync","position":…} does. A folder is followed past the processes that have
it open: while there is none, -f waits for the next one and keeps nothing from it.`,
		Example: "  ledger event tail -n 20\n  ledger event tail -f -o jsonl\n  ledger event tail --kind CallSettled",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				if err := filter.Resolve(cmd.Context(), s); err != nil {
					return err
				}
				return a.tailEvents(cmd.Context(), s, filter, t)
			})
		},
	}
	a.eventFilterFlags(cmd, &filter)
	t.flags(cmd)
	return cmd
}

// sessionTail returns the command session tail, which filters by the session's stream.
func (a *app) sessionTail() *cobra.Command {
	var t tail
	cmd := &cobra.Command{
		Use: "tail [SESSION]", Short: "Show the last events of a session, and with -f what comes",
		Example: "  ledger session tail @last\n  ledger session tail -f 4K2P9Q",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.complete(query.SessionWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				session, _, err := query.LoadSession(cmd.Context(), s, query.OrLast(args))
				if err != nil {
					return err
				}
				return a.tailEvents(cmd.Context(), s, query.EventFilter{Stream: string(events.SessionStream(session.ID))}, t)
			})
		},
	}
	t.flags(cmd)
	return cmd
}

// tailEvents writes the last t.last selected events and, with t.follow, the events behind them
// until ctx ends or the reader of the output leaves. It reads the head of the log first, so
// that follow neither repeats nor skips an event.
func (a *app) tailEvents(ctx context.Context, s *stores.Store, filter query.EventFilter, t tail) error {
	if t.last < 0 {
		return fault.Usage("-n: %d is below zero", t.last)
	}
	end, err := s.Head(ctx)
	if err != nil {
		return err
	}
	ring, err := a.lastEntries(query.Entries(ctx, s, events.Position{}, filter), end, t.last)
	if err != nil {
		return err
	}
	w := a.eventWriter()
	// A JSON array has to end, and a followed log does not.
	w.lines = w.lines || t.follow && a.Format == render.AsJSON
	for _, e := range ring {
		_, damage := events.Decode(e)
		if err := w.write(e, damage); err != nil {
			return err
		}
	}
	if !t.follow {
		return w.end()
	}
	ctx, stop := a.WhileRead(ctx)
	defer stop()
	return a.follow(ctx, s, end, filter, w)
}

// lastEntries returns the last n entries at or before end. It reports records that the store
// cannot read on the standard error, and leaves them out.
func (a *app) lastEntries(entries iter.Seq2[events.Entry, error], end events.Position, n int) ([]events.Entry, error) {
	var ring []events.Entry
	for e, err := range entries {
		switch {
		case err != nil && !errors.Is(err, events.ErrDamaged):
			return nil, err
		case e.ID.IsZero():
			a.WriteFault(fault.Of(err))
			continue
		case e.Position.Compare(end) > 0:
			return ring[max(0, len(ring)-n):], nil
		}
		if ring = append(ring, e); len(ring) > 2*n+100 { // trim in batches, for an amortized constant cost per entry
			ring = slices.Delete(ring, 0, len(ring)-n)
		}
	}
	return ring[max(0, len(ring)-n):], nil
}

// follow writes the selected events behind a position until ctx ends. It reports once that it
// has caught up, and flushes the output each time it does. An interruption is the normal end:
// follow returns it as an error without a text.
func (a *app) follow(ctx context.Context, s *stores.Store, after events.Position, filter query.EventFilter, w *eventWriter) error {
	told := false
	caughtUp := func(at events.Position) {
		if !told {
			a.synced(w, at)
		}
		told = true
		_ = a.Out.Flush() // the error stays in the writer, and is returned with the next line
	}
	for e, err := range a.Follow(ctx, s, after, caughtUp) {
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

// synced reports that follow has caught up: as a record {"type":"sync"} among JSON Lines, and
// otherwise as a line on the standard error.
func (a *app) synced(w *eventWriter, at events.Position) {
	if !w.lines {
		_ = a.Out.Flush()
		fmt.Fprintln(a.Err, "— caught up, following —")
		return
	}
	must(a.JSONLine(struct {
		Type     string          `json:"type"`
		Position events.Position `json:"position"`
	}{"sync", at})) // encoding a position cannot fail
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
