package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/charmbracelet/x/ansi"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/spf13/cobra"
)

func (a *app) eventCommand() *cobra.Command {
	return a.group("event", "Events: list them, follow them", a.eventList(), a.eventTail())
}

// An eventFilter says which events are shown.
type eventFilter struct {
	stream  string
	kinds   []string
	session string
	of      domain.SessionID // that session is
	when    period
}

func (f *eventFilter) flags(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.stream, "stream", "", "only those of this stream")
	cmd.Flags().StringSliceVar(&f.kinds, "kind", nil, "only those of this kind; may be given several times")
	cmd.Flags().StringVar(&f.session, "session", "", "only those of this session, in whatever stream")
	must(cmd.RegisterFlagCompletionFunc("session", a.completeSessions))
	must(cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(events.Kinds(), cobra.ShellCompDirectiveNoFileComp)))
}

// resolve finds what is meant, and refuses a kind and a stream that the log does not
// have.
func (f *eventFilter) resolve(ctx context.Context, s *stores.Store) error {
	if err := checkKinds(ctx, s, f.kinds); err != nil {
		return err
	}
	if err := checkStream(ctx, s, f.stream); err != nil {
		return err
	}
	if f.session == "" {
		return nil
	}
	session, _, err := sessionOf(ctx, s, f.session)
	f.of = session.ID
	return err
}

// takes reports whether an event is shown. One that is damaged belongs to the
// session of its stream.
func (f *eventFilter) takes(e events.Entry, v events.Envelope) bool {
	session := v.Correlation
	if own, ok := e.Stream.Session(); ok {
		session = own
	}
	return (f.stream == "" || string(e.Stream) == f.stream) && (len(f.kinds) == 0 || slices.Contains(f.kinds, e.Kind)) &&
		(f.of.IsZero() || session == f.of) && f.when.holds(e.Time)
}

func (a *app) eventList() *cobra.Command {
	var filter eventFilter
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
	filter.flags(a, cmd)
	filter.when.flags(cmd, "those appended")
	cmd.Flags().StringVar(&after, "after", "", "only those behind this position")
	cmd.Flags().IntVar(&limit, "limit", 0, "only so many, the first ones (0: all)")
	return cmd
}

func (a *app) listEvents(ctx context.Context, s *stores.Store, filter eventFilter, after string, limit int) error {
	position, err := positionFlag(after)
	if err != nil {
		return err
	}
	if limit < 0 {
		return fault.Usage("--limit: %d is below zero", limit)
	}
	if err := filter.when.resolve(a); err != nil {
		return err
	}
	if err := filter.resolve(ctx, s); err != nil {
		return err
	}
	w := a.eventWriter()
	err = a.writeEvents(w, filtered(ctx, s, position, filter), limit)
	return errors.Join(w.end(), err)
}

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

func damage(n int) error {
	if n == 0 {
		return nil
	}
	return &fault.Error{Exit: fault.ExitFailed, Code: "damaged", Err: fmt.Errorf("read events: %d places of the log are damaged", n), Hint: "ledger verify lists them"}
}

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

// filtered yields the entries behind a position that a filter takes. One that
// does not decode comes with its ErrDamaged; one that cannot be read at all is
// a zero Entry with an ErrDamaged. Any other error is the last.
func filtered(ctx context.Context, s *stores.Store, after events.Position, filter eventFilter) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range s.Entries(ctx, after) {
			var v events.Envelope
			if err == nil {
				v, err = events.Decode(e)
			}
			if !e.ID.IsZero() && !filter.takes(e, v) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// An eventWriter writes events one by one, in the format asked for. Columns
// have fixed widths, as what is to come is not known.
type eventWriter struct {
	a     *app
	lines bool // an array cannot be followed
	width int  // of the terminal; 0: there is none
	n     int
}

func (a *app) eventWriter() *eventWriter {
	return &eventWriter{a: a, lines: a.Format == render.AsJSONLines, width: a.Columns()}
}

// A terminal that is narrower than eventWidth gets lines without time, stream and
// revision.
const (
	eventLine  = "%8s  %-12s  %-12s  %4s  %-19s  %s"
	eventWidth = 80
)

// line returns the line of an event, as wide as the terminal at most.
func (w *eventWriter) line(position, time, stream, revision, kind, what string) string {
	switch {
	case w.width == 0:
		return fmt.Sprintf(eventLine, position, time, stream, revision, kind, what)
	case w.width < eventWidth:
		return ansi.Truncate(fmt.Sprintf("%s %s %s", position, kind, what), w.width, "…")
	}
	return ansi.Truncate(fmt.Sprintf(eventLine, position, time, stream, revision, kind, what), w.width, "…")
}

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

// end ends what was written.
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

// streamText returns a stream as tables print it.
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

// A tail says how much of the end is shown, and whether what comes is.
type tail struct {
	last   int
	follow bool
}

func (t *tail) flags(cmd *cobra.Command) {
	cmd.Flags().IntVarP(&t.last, "lines", "n", 10, "how many of the last events are shown first")
	cmd.Flags().BoolVarP(&t.follow, "follow", "f", false, "wait for more, until interrupted")
}

func (a *app) eventTail() *cobra.Command {
	var filter eventFilter
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
				if err := filter.resolve(cmd.Context(), s); err != nil {
					return err
				}
				return a.tailEvents(cmd.Context(), s, filter, t)
			})
		},
	}
	filter.flags(a, cmd)
	t.flags(cmd)
	return cmd
}

func (a *app) sessionTail() *cobra.Command {
	var t tail
	cmd := &cobra.Command{
		Use: "tail [SESSION]", Short: "Show the last events of a session, and with -f what comes",
		Example: "  ledger session tail @last\n  ledger session tail -f 4K2P9Q",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error {
				session, _, err := sessionOf(cmd.Context(), s, orLast(args))
				if err != nil {
					return err
				}
				return a.tailEvents(cmd.Context(), s, eventFilter{stream: string(events.SessionStream(session.ID))}, t)
			})
		},
	}
	t.flags(cmd)
	return cmd
}

func (a *app) tailEvents(ctx context.Context, s *stores.Store, filter eventFilter, t tail) error {
	if t.last < 0 {
		return fault.Usage("-n: %d is below zero", t.last)
	}
	end, err := s.Head(ctx)
	if err != nil {
		return err
	}
	ring, err := a.lastEntries(filtered(ctx, s, events.Position{}, filter), end, t.last)
	if err != nil {
		return err
	}
	w := a.eventWriter()
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

// lastEntries returns the last n entries up to a position.
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
		if ring = append(ring, e); len(ring) > 2*n+100 { // seldom, so that a long end costs no more than it holds
			ring = slices.Delete(ring, 0, len(ring)-n)
		}
	}
	return ring[max(0, len(ring)-n):], nil
}

// follow writes what comes behind a position until the context ends, and says
// once that it has caught up. To be interrupted is its ordinary end.
func (a *app) follow(ctx context.Context, s *stores.Store, after events.Position, filter eventFilter, w *eventWriter) error {
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
		if !filter.takes(e, v) {
			continue
		}
		if err := w.write(e, damage); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) synced(w *eventWriter, at events.Position) {
	if !w.lines {
		_ = a.Out.Flush()
		fmt.Fprintln(a.Err, "— caught up, following —")
		return
	}
	must(a.JSONLine(struct {
		Type     string          `json:"type"`
		Position events.Position `json:"position"`
	}{"sync", at})) // it always is JSON
}

// interruptedFollow returns how following ended. An interruption needs no text.
func interruptedFollow(err error) error {
	if !errors.Is(err, domain.ErrInterrupted) {
		return err
	}
	f := *fault.Of(err)
	f.Quiet = true
	return &f
}
