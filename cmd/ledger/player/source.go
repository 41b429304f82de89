package player

import (
	"context"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The limits of what a player holds.
const (
	windowSize = 128      // events in a window
	maxTexts   = 64 << 10 // bytes of the texts of an event
	maxSummary = 400      // columns of the line of an event
)

// A frame is an event of the session as the player shows it. Its texts are printable.
type frame struct {
	revision events.Revision
	position events.Position
	time     time.Time
	label    string
	summary  string
	outcome  string // of a settlement; empty: another event
	texts    []views.NamedText
	cut      int // bytes of the texts that are left out
}

// newFrame returns the frame of an event.
func newFrame(v events.Envelope) frame {
	f := frame{revision: v.Revision, position: v.Position, time: v.Time, label: views.KindLabel(v.Event.Kind()), summary: render.OneLine(views.Summary(v.Event), maxSummary)}
	if end, ok := v.Event.(events.CallSettled); ok {
		f.outcome, f.label = end.Outcome.String(), "result"
	}
	if _, ok := v.Event.(events.CallStarted); ok {
		f.label = "call"
	}
	room := maxTexts
	for _, t := range views.Texts(v.Event) {
		if len(t.Text) > room {
			f.cut += len(t.Text) - room
			t.Text = strings.ToValidUTF8(t.Text[:room], "")
		}
		room -= len(t.Text)
		if t.Text = render.Printable(strings.TrimRight(t.Text, "\n")); t.Text != "" {
			t.Text = strings.ReplaceAll(t.Text, "\t", "    ")
			f.texts = append(f.texts, t)
		}
	}
	return f
}

// A Source reads one session.
type Source struct {
	Ctx     context.Context // ends all reads
	Ledger  *events.Ledger
	Session domain.SessionID
}

// frames returns the frames of at most n events from a revision on.
func (s Source) frames(from events.Revision, n int) (all []frame, err error) {
	for v, err := range s.Ledger.Read(s.Ctx, events.SessionStream(s.Session), from-1) {
		if err != nil {
			return nil, err
		}
		if all = append(all, newFrame(v)); len(all) == n {
			break
		}
	}
	return all, nil
}

// find returns the revision of the nearest event behind a revision whose texts contain a
// text, in any case, or 0. Backwards it searches before the revision.
func (s Source) find(text string, from, last events.Revision, backwards bool, stop <-chan struct{}) (events.Revision, error) {
	text = strings.ToLower(text)
	has := func(e events.Event) bool {
		for _, t := range views.Texts(e) {
			if strings.Contains(strings.ToLower(t.Text), text) {
				return true
			}
		}
		return strings.Contains(strings.ToLower(views.KindLabel(e.Kind())), text)
	}
	scan := func(first, end events.Revision, each func(events.Envelope) bool) error {
		for v, err := range s.Ledger.Read(s.Ctx, events.SessionStream(s.Session), first-1) {
			if err != nil {
				return err
			}
			select {
			case <-stop:
				return nil
			default:
			}
			if v.Revision > end || !each(v) {
				break
			}
		}
		return nil
	}
	found := events.Revision(0)
	if !backwards {
		err := scan(from+1, last, func(v events.Envelope) bool {
			if has(v.Event) {
				found = v.Revision
			}
			return found == 0
		})
		return found, err
	}
	for end := from - 1; end > 0 && found == 0; {
		first := max(1, end-min(end, windowSize)+1)
		err := scan(first, end, func(v events.Envelope) bool {
			if has(v.Event) {
				found = v.Revision // the last one counts
			}
			return true
		})
		if err != nil {
			return 0, err
		}
		select {
		case <-stop:
			return 0, nil
		default:
		}
		end = first - 1
	}
	return found, nil
}
