package sessions

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A progressPrinter prints the progress of a session while the session runs: a line for
// each settled call, and a line for each text of a reply, refused reply and
// interruption. It only reads the log. It is not safe for concurrent use: the method
// during joins its follower goroutine before it reads the remaining events.
type progressPrinter struct {
	*Launcher
	to      io.Writer // the standard error of the command
	session domain.SessionID
	started map[string]time.Time   // when each call began, by callName
	calls   map[string]domain.Call // the calls of all replies and the calls that they added, by callName
	handled events.Revision        // the revision of the last event that handleAll received
}

// PrintProgress calls the function work and meanwhile writes the progress of the session
// to the writer: a line for each settled call, and a line for each text of a reply,
// refused reply and interruption. It returns the error of work. If that is nil, it
// returns the error of reading the log.
func (l *Launcher) PrintProgress(ctx context.Context, to io.Writer, s *stores.Store, session domain.SessionID, work func() error) error {
	w := &progressPrinter{Launcher: l, to: to, session: session, started: map[string]time.Time{}, calls: map[string]domain.Call{}}
	return w.during(ctx, s, work)
}

// during calls the function work and meanwhile prints the progress of the session. It
// prints no event that was recorded before the call. When work returns, it joins the
// follower goroutine and prints the remaining events.
func (w *progressPrinter) during(ctx context.Context, s *stores.Store, work func() error) error {
	stream := events.SessionStream(w.session)
	from, err := s.Head(ctx)
	if err != nil {
		return err
	}
	if err := w.handleAll(s.Ledger.Read(ctx, stream, w.handled), false); err != nil {
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
	if rest := w.handleAll(s.Ledger.Read(context.WithoutCancel(ctx), stream, w.handled), true); err == nil {
		err = rest
	}
	return err
}

// handleAll calls handle, in order, for the events of the session after revision
// w.handled. It prints their lines only if the parameter print is set.
func (w *progressPrinter) handleAll(envelopes func(func(events.Envelope, error) bool), print bool) error {
	for v, err := range envelopes {
		if err != nil {
			return err
		}
		if v.Stream != events.SessionStream(w.session) || v.Revision != w.handled+1 {
			continue
		}
		w.handled = v.Revision
		w.handle(v, print)
	}
	return nil
}

// handle notes the calls and the start times in an event, which the lines of later
// events need. If print is set and the event has a line, handle prints it.
func (w *progressPrinter) handle(v events.Envelope, print bool) {
	switch e := v.Event.(type) {
	case events.ReplyReceived:
		for _, c := range e.Calls {
			w.calls[callName(e.Message, c.ID)] = c
		}
		if text := render.OneLine(e.Text, 100); print && text != "" {
			w.printLine("%s", w.Styled(render.Dim, text))
		}
	case events.CallsAdded:
		for _, c := range e.Calls {
			w.calls[callName(e.Message, c.ID)] = c
		}
	case events.CallStarted:
		w.started[callName(e.Message, e.Call)] = v.Time
	case events.CallSettled:
		if print {
			w.printSettled(v.Time, e)
		}
	case events.ReplyRefused:
		if print {
			w.printLine("%s", w.Styled(render.Yellow, "■ reply refused: "+render.OneLine(e.Reason, 100)))
		}
	case events.SessionInterrupted:
		if print {
			w.printLine("%s", w.Styled(render.Yellow, strings.TrimSpace("■ interrupted by "+e.Reason.String()+" "+e.Detail)))
		}
	}
}

// printLine prints one line, truncated to the width of the terminal.
func (w *progressPrinter) printLine(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if width := w.ErrColumns(); width > 0 {
		text = ansi.Truncate(text, width, "…")
	}
	fmt.Fprintln(w.to, text)
}

// callName returns a key for a call that is unique in its session.
func callName(message domain.MessageID, call domain.CallID) string {
	return message.String() + "/" + string(call)
}

// printSettled prints the outcome and the duration of a call. The parameter at is the
// time at which the call settled.
func (w *progressPrinter) printSettled(at time.Time, e events.CallSettled) {
	name := callName(e.Message, e.Call)
	took := ""
	if begun, ok := w.started[name]; ok {
		took = render.Duration(at.Sub(begun))
	}
	w.printLine("  %s  %-12s %6s  %s", w.PaddedOutcome(e.Outcome.String(), 18), render.OneLine(e.Tool, 24), took,
		w.Styled(render.Dim, render.OneLine(w.InputSummary(w.calls[name].Input), render.TextWidth)))
}
