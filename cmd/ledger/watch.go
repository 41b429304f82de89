package main

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

// A watch prints the progress of a session while it runs: a line for each settled
// call, and one for each text of a reply, refused reply and interruption. It reads
// the log only. It is not safe for concurrent use: during joins its follower before
// it reads the rest.
type watch struct {
	app     *app
	to      io.Writer // the standard error of the command
	session domain.SessionID
	started map[string]time.Time   // when each call began, by callName
	asked   map[string]domain.Call // the calls of all replies, by callName
	told    events.Revision        // the last revision that tell handled
}

// watch returns a watch of a session that prints to to.
func (a *app) watch(to io.Writer, session domain.SessionID) *watch {
	return &watch{app: a, to: to, session: session, started: map[string]time.Time{}, asked: map[string]domain.Call{}}
}

// during calls work and prints the progress of the session meanwhile. It prints no
// event recorded before. When work returns it joins the follower and prints the
// rest.
func (w *watch) during(ctx context.Context, s *stores.Store, work func() error) error {
	stream := events.SessionStream(w.session)
	from, err := s.Head(ctx)
	if err != nil {
		return err
	}
	if err := w.tell(s.Ledger.Read(ctx, stream, w.told), false); err != nil {
		return err
	}
	following, stop := context.WithCancel(ctx)
	var follower sync.WaitGroup
	follower.Go(func() {
		// An error here loses no line: during reads the rest after work.
		_ = w.tell(s.Ledger.Follow(following, from), true)
	})
	err = work()
	stop()
	follower.Wait()
	if rest := w.tell(s.Ledger.Read(context.WithoutCancel(ctx), stream, w.told), true); err == nil {
		err = rest
	}
	return err
}

// tell handles the events of the session behind revision w.told, in order. It prints
// them only if aloud is set.
func (w *watch) tell(envelopes func(func(events.Envelope, error) bool), aloud bool) error {
	for v, err := range envelopes {
		if err != nil {
			return err
		}
		if v.Stream != events.SessionStream(w.session) || v.Revision != w.told+1 {
			continue
		}
		w.told = v.Revision
		w.learn(v, aloud)
	}
	return nil
}

// learn notes an event, and prints it if aloud is set.
func (w *watch) learn(v events.Envelope, aloud bool) {
	switch e := v.Event.(type) {
	case events.ReplyReceived:
		for _, c := range e.Calls {
			w.asked[callName(e.Message, c.ID)] = c
		}
		if text := render.OneLine(e.Text, 100); aloud && text != "" {
			w.line("%s", w.app.Styled(render.Dim, text))
		}
	case events.CallStarted:
		w.started[callName(e.Message, e.Call)] = v.Time
	case events.CallSettled:
		if aloud {
			w.settled(v.Time, e)
		}
	case events.ReplyRefused:
		if aloud {
			w.line("%s", w.app.Styled(render.Yellow, "■ reply refused: "+render.OneLine(e.Reason, 100)))
		}
	case events.SessionInterrupted:
		if aloud {
			w.line("%s", w.app.Styled(render.Yellow, strings.TrimSpace("■ interrupted by "+e.Reason.String()+" "+e.Detail)))
		}
	}
}

// line prints one line, truncated to the width of the terminal.
func (w *watch) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if width := w.app.ErrColumns(); width > 0 {
		text = ansi.Truncate(text, width, "…")
	}
	fmt.Fprintln(w.to, text)
}

// callName returns a key for a call that is unique in its session.
func callName(message domain.MessageID, call domain.CallID) string {
	return message.String() + "/" + string(call)
}

// settled prints the outcome and the duration of a call that settled at at.
func (w *watch) settled(at time.Time, e events.CallSettled) {
	name := callName(e.Message, e.Call)
	took := ""
	if begun, ok := w.started[name]; ok {
		took = render.Duration(at.Sub(begun))
	}
	w.line("  %s  %-12s %6s  %s", w.app.PaddedOutcome(e.Outcome.String(), 18), render.OneLine(e.Tool, 24), took,
		w.app.Styled(render.Dim, render.OneLine(gist(w.asked[name].Input), render.TextWidth)))
}
