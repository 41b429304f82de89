package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
)

// A progressPrinter prints the progress of a session while the session runs: a line for
// each settled call, refused reply, interruption, and tool or server that is not offered, and
// the text of each reply. If texts
// is set, it writes a text there in full, as the parts of the reply arrive; otherwise it
// prints one line of the text when the log has the reply. It only reads the log. Its
// methods during and part may be called concurrently.
type progressPrinter struct {
	*Launcher
	to      io.Writer // receives the lines: the standard error of the command
	session domain.SessionID
	layer   domain.LayerID // its refused tools and servers are printed; zero: none
	texts   *streamWriter  // receives the texts as they arrive; nil: one line for each
	// readLog handles the events that the log has and handleAll has not received.
	readLog func() error
	mu      struct {
		sync.Mutex
		started  map[string]time.Time              // when each call began, by callName
		calls    map[string]domain.Call            // the calls of all replies and the calls that they added, by callName
		handled  map[events.Stream]events.Revision // the revision of the last event that handleAll received, of each stream
		turn     domain.TurnID                     // of the last part
		streamed map[domain.MessageID]bool         // the replies of which texts has a part
	}
}

// PrintProgress calls the function work and meanwhile writes the progress of the session
// to the writer: a line for each settled call, and a line for each text of a reply,
// refused reply and interruption. It returns the error of work. If that is nil, it
// returns the error of reading the log.
func (l *Launcher) PrintProgress(ctx context.Context, to io.Writer, s *stores.Store, session domain.SessionID, work func() error) error {
	return l.newProgress(to, session).during(ctx, s, work)
}

// newProgress returns a progressPrinter that streams no texts.
func (l *Launcher) newProgress(to io.Writer, session domain.SessionID) *progressPrinter {
	w := &progressPrinter{Launcher: l, to: to, session: session}
	w.mu.started, w.mu.calls, w.mu.streamed = map[string]time.Time{}, map[string]domain.Call{}, map[domain.MessageID]bool{}
	w.mu.handled = map[events.Stream]events.Revision{}
	return w
}

// during calls the function work and meanwhile prints the progress of the session. It
// prints all refusals of the layer, and no event of the session that was recorded before the
// call. When work returns, it joins the
// follower goroutine and prints the remaining events.
func (w *progressPrinter) during(ctx context.Context, s *stores.Store, work func() error) error {
	session, layer := events.SessionStream(w.session), events.LayerStream(w.layer)
	from, err := s.Head(ctx)
	if err != nil {
		return err
	}
	read := func(ctx context.Context, stream events.Stream, print bool) error {
		return w.handleAll(s.Ledger.Read(ctx, stream, w.revision(stream)), print)
	}
	w.readLog = func() error {
		ctx := context.WithoutCancel(ctx)
		if w.layer.IsZero() {
			return read(ctx, session, true)
		}
		return errors.Join(read(ctx, layer, true), read(ctx, session, true))
	}
	if err := read(ctx, session, false); err != nil {
		return err
	}
	if err := w.readLog(); err != nil { // the layer is older than the session
		return err
	}
	following, stop := context.WithCancel(ctx)
	var follower sync.WaitGroup
	follower.Go(func() {
		// An error here loses no line: during reads the rest after work.
		_ = w.handleAll(s.Ledger.Follow(following, from), true)
	})
	err = work()
	stop()
	follower.Wait()
	if rest := w.readLog(); err == nil {
		err = rest
	}
	return err
}

// revision returns the revision of the last event of a stream that handleAll received.
func (w *progressPrinter) revision(stream events.Stream) events.Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.handled[stream]
}

// handleAll calls handle, in order, for the events of the session and of the layer after the
// last one that it received. It prints their lines only if the parameter print is set.
func (w *progressPrinter) handleAll(envelopes func(func(events.Envelope, error) bool), print bool) error {
	for v, err := range envelopes {
		if err != nil {
			return err
		}
		if v.Stream == events.SessionStream(w.session) || !w.layer.IsZero() && v.Stream == events.LayerStream(w.layer) {
			w.handleNext(v, print)
		}
	}
	return nil
}

// handleNext calls handle for an event if it follows the last one of its stream. The others
// were handled already: the follower and readLog read the same log.
func (w *progressPrinter) handleNext(v events.Envelope, print bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.Revision == w.mu.handled[v.Stream]+1 {
		w.mu.handled[v.Stream] = v.Revision
		w.handleLocked(v, print)
	}
}

// handleLocked notes the calls and the start times in an event, which the lines of later
// events need. If print is set and the event has a line, handleLocked prints it. The
// caller holds mu.
func (w *progressPrinter) handleLocked(v events.Envelope, print bool) {
	switch e := v.Event.(type) {
	case events.ReplyReceived:
		for _, c := range e.Calls {
			w.mu.calls[callName(e.Message, c.ID)] = c
		}
		if text := render.OneLine(e.Text, 100); print && text != "" && !w.mu.streamed[e.Message] {
			w.printLine("%s", w.Styled(render.Dim, text))
		}
		if ending := unusualEnd(e); print && ending != "" {
			w.printLine("%s", w.Styled(render.Yellow, ending))
		}
	case events.ToolsRegistered:
		for _, r := range e.Refused {
			w.printRefused(r)
		}
	case events.CallsAdded:
		for _, c := range e.Calls {
			w.mu.calls[callName(e.Message, c.ID)] = c
		}
	case events.CallStarted:
		w.mu.started[callName(e.Message, e.Call)] = v.Time
	case events.CallSettled:
		if print {
			w.printSettled(v.Time, e)
		}
	case events.ReplyRefused:
		if print {
			w.printLine("%s", w.Styled(render.Yellow, "■ reply refused: "+render.OneLine(e.Reason, 100)))
		}
	case events.ContextCompacted:
		if print {
			w.printLine("%s", w.Styled(render.Yellow, fmt.Sprintf("■ context compacted: later requests leave out %s and %s", render.Count(int(e.Prompts), "prompt"), render.Count(int(e.Replies), "reply"))))
		}
	case events.SessionInterrupted:
		if print {
			w.printLine("%s", w.Styled(render.Yellow, strings.TrimSpace("■ interrupted by "+e.Reason.String()+" "+e.Detail)))
		}
	}
}

// usualFinish are the stop reasons of replies that the model ended by itself. Replies of
// trajectories have no stop reason.
var usualFinish = []string{"", "end_turn", "tool_use", "stop_sequence", "stop", "tool_calls", "function_call", "completed"}

// unusualEnd returns a line for a reply that is empty, or that the model did not end by
// itself, and "" for every other one.
func unusualEnd(e events.ReplyReceived) string {
	finish := render.OneLine(e.Finish, 40)
	switch empty := strings.TrimSpace(e.Text) == "" && len(e.Calls) == 0; {
	case empty && finish != "":
		return fmt.Sprintf("■ the reply of %s is empty: its stop reason is %s", render.OneLine(e.Model, 40), finish)
	case empty:
		return fmt.Sprintf("■ the reply of %s is empty", render.OneLine(e.Model, 40))
	case !slices.Contains(usualFinish, e.Finish):
		return fmt.Sprintf("■ the reply of %s ended early: its stop reason is %s", render.OneLine(e.Model, 40), finish)
	}
	return ""
}

// part writes a part of a reply to texts. It first prints the lines of the events before
// the reply, so that the lines of calls do not follow the text that answers them. It
// ignores the replies of subsessions.
func (w *progressPrinter) part(turn runner.Turn, part runner.Part) {
	if turn.Session != w.session {
		return
	}
	if w.beginsTurn(turn.ID) {
		_ = w.readLog() // an error here loses no line: during reads the rest after work
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch part := part.(type) {
	case runner.TextPart:
		w.mu.streamed[turn.Message] = w.texts != nil
		w.texts.writeText(string(part))
	case runner.ThinkingPart:
		w.texts.writeThinking(string(part))
	case runner.FailedAttemptPart:
		w.printLine("%s", w.Styled(render.Yellow, fmt.Sprintf("■ attempt %d failed, asking again: %s", part.Attempt, render.OneLine(part.Err.Error(), 200))))
	case runner.FinishPart:
		w.texts.endLine()
	}
}

// beginsTurn reports whether the last part belongs to another turn.
func (w *progressPrinter) beginsTurn(turn domain.TurnID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	begins := w.mu.turn != turn
	w.mu.turn = turn
	return begins
}

// streamed returns the replies of which texts has a part. It is called after during.
func (w *progressPrinter) streamed() map[domain.MessageID]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.mu.streamed)
}

// printLine prints one line, truncated to the width of the terminal. It ends an unfinished
// line of texts first. The caller holds mu.
func (w *progressPrinter) printLine(format string, args ...any) {
	w.texts.endLine()
	text := fmt.Sprintf(format, args...)
	if width := w.ErrColumns(); width > 0 {
		text = ansi.Truncate(text, width, "…")
	}
	fmt.Fprintln(w.to, text)
}

// printRefused prints why a tool or a server is not offered, whole. The caller holds mu.
func (w *progressPrinter) printRefused(r events.RefusedTool) {
	w.texts.endLine()
	text := r.Reason
	if !strings.Contains(strings.ToLower(text), strings.ToLower(r.Name)) {
		text = r.Name + ": " + text
	}
	fmt.Fprintf(w.to, "warning: not offered: %s\n", render.OneLine(text, 400))
}

// callName returns a key for a call that is unique in its session.
func callName(message domain.MessageID, call domain.CallID) string {
	return message.String() + "/" + string(call)
}

// printSettled prints the outcome and the duration of a call. The parameter at is the
// time at which the call settled. The caller holds mu.
func (w *progressPrinter) printSettled(at time.Time, e events.CallSettled) {
	name := callName(e.Message, e.Call)
	took := ""
	if begun, ok := w.mu.started[name]; ok {
		took = render.Duration(at.Sub(begun))
	}
	w.printLine("  %s  %-12s %6s  %s", w.PaddedOutcome(e.Outcome.String(), 18), render.OneLine(e.Tool, 24), took,
		w.Styled(render.Dim, render.OneLine(w.InputSummary(w.mu.calls[name].Input), render.TextWidth)))
}
