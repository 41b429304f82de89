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

// A watch tells how a session goes on while it runs: one line for each call,
// from the log and nothing else.
type watch struct {
	app     *app
	to      io.Writer
	session domain.SessionID
	started map[string]time.Time // of the calls that run
	asked   map[string]domain.Call
	told    events.Revision
}

func (a *app) watch(to io.Writer, session domain.SessionID) *watch {
	return &watch{app: a, to: to, session: session, started: map[string]time.Time{}, asked: map[string]domain.Call{}}
}

// during follows the session while work runs and tells the rest when it has
// ended.
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
		// What this misses is read when the work has ended.
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

// line writes a line, as wide as the terminal at most.
func (w *watch) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if width := w.app.ErrColumns(); width > 0 {
		text = ansi.Truncate(text, width, "…")
	}
	fmt.Fprintln(w.to, text)
}

func callName(message domain.MessageID, call domain.CallID) string {
	return message.String() + "/" + string(call)
}

func (w *watch) settled(at time.Time, e events.CallSettled) {
	name := callName(e.Message, e.Call)
	took := ""
	if begun, ok := w.started[name]; ok {
		took = render.Duration(at.Sub(begun))
	}
	w.line("  %s  %-12s %6s  %s", w.app.PaddedOutcome(e.Outcome.String(), 18), render.OneLine(e.Tool, 24), took,
		w.app.Styled(render.Dim, render.OneLine(gist(w.asked[name].Input), render.TextWidth)))
}
