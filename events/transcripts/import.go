package transcripts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// Import adds the events of t that are not on record, and returns how many it
// added, also with an error. What it added before an error stays, and a
// further Import goes on from there. A file that says otherwise than what is
// on record of the same thing is an [ErrContradicted] that names file, stream
// and revision, and nothing of that stream is added. Another program that
// appends at the same time makes it an [events.ErrConflict].
func (t *Transcript) Import(ctx context.Context, l *events.Ledger) (added int, err error) {
	for _, p := range t.parts {
		n, err := p.add(ctx, l)
		added += n
		t.Report.Added += n
		switch {
		case errors.Is(err, events.ErrConflict):
			return added, fmt.Errorf("import %s: %w: another program appended to it; import the file again", t.Report.File, err)
		case err != nil:
			return added, fmt.Errorf("import %s: %w", t.Report.File, err)
		}
	}
	return added, nil
}

// One append adds at most so many events, and no more once their data is so
// long.
const (
	mostEvents = 256
	mostBytes  = 4 << 20
)

// add adds what the stream does not have.
func (p part) add(ctx context.Context, l *events.Ledger) (added int, err error) {
	held, err := p.read(ctx, l)
	if err != nil {
		return 0, err
	}
	missing, err := held.missing(p)
	if err != nil {
		return 0, err
	}
	for len(missing) > 0 {
		n, size := 0, 0
		for n < len(missing) && n < mostEvents && size < mostBytes {
			size += weight(missing[n].Event)
			n++
		}
		if _, err := l.Append(ctx, p.stream, held.length, missing[:n]...); err != nil {
			return added, err
		}
		held.length += events.Revision(n)
		added += n
		missing = missing[n:]
	}
	return added, nil
}

// weight is about how long the data of an event is.
func weight(e events.Event) int {
	switch e := e.(type) {
	case events.PromptAdmitted:
		return len(e.Text)
	case events.ReplyReceived:
		size := len(e.Text)
		for _, c := range e.Calls {
			size += len(c.Input)
		}
		return size
	case events.CallSettled:
		size := len(e.Text) + len(e.Structured) + len(e.Content.Text())
		for _, m := range e.Content.Media() {
			size += 2 * len(m.Data)
		}
		return size
	case events.LateResultObserved:
		return len(e.Text) + len(e.Structured)
	}
	return 0
}

// A holding is what a stream has on record, as far as a part is compared with
// it.
type holding struct {
	length  events.Revision
	events  map[domain.EventID]place
	settled map[asked]domain.EventID
	turns   map[domain.TurnID][]domain.Offered
	replies map[domain.MessageID]events.ReplyReceived // with all that later events added
}

type place struct {
	revision events.Revision
	digest   digest
}

// asked names a call within a session.
type asked struct {
	message domain.MessageID
	call    domain.CallID
}

// read reads the stream.
func (p part) read(ctx context.Context, l *events.Ledger) (*holding, error) {
	h := &holding{
		events: map[domain.EventID]place{}, settled: map[asked]domain.EventID{},
		turns: map[domain.TurnID][]domain.Offered{}, replies: map[domain.MessageID]events.ReplyReceived{},
	}
	for v, err := range l.Read(ctx, p.stream, 0) {
		if err != nil {
			return nil, err
		}
		if err := h.take(v); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *holding) take(v events.Envelope) error {
	d, err := digestOf(events.Draft{ID: v.ID, Time: v.Time, Event: v.Event})
	if err != nil {
		return err
	}
	h.length = v.Revision
	h.events[v.ID] = place{v.Revision, d}
	switch e := v.Event.(type) {
	case events.CallSettled:
		if key := (asked{e.Message, e.Call}); h.settled[key].IsZero() {
			h.settled[key] = v.ID
		}
	case events.TurnMaterialized:
		for _, o := range e.Tools {
			if !slices.Contains(h.turns[e.Turn], o) {
				h.turns[e.Turn] = append(h.turns[e.Turn], o)
			}
		}
	case events.ReplyReceived:
		h.replies[e.Message] = joined(h.replies[e.Message], e)
	}
	return nil
}

// digestOf tells what happened when. What led to it is left out: it follows.
func digestOf(d events.Draft) (digest, error) {
	d.Causation, d.Correlation = domain.EventID{}, domain.SessionID{}
	record, err := events.Encode(d)
	return sum(record.Kind, record.Time.String(), string(record.Data)), err
}

// joined returns a reply with what a later event adds to it.
func joined(r, more events.ReplyReceived) events.ReplyReceived {
	more.Text = r.Text + more.Text
	more.Calls = append(slices.Clip(r.Calls), more.Calls...)
	more.Tokens = events.Tokens{
		Input: r.Tokens.Input + more.Tokens.Input, Output: r.Tokens.Output + more.Tokens.Output,
		CacheRead: r.Tokens.CacheRead + more.Tokens.CacheRead, CacheWrite: r.Tokens.CacheWrite + more.Tokens.CacheWrite,
	}
	if more.Finish == "" {
		more.Finish = r.Finish
	}
	return more
}

// missing returns the drafts of a part that are not on record, in order.
func (h *holding) missing(p part) ([]events.Draft, error) {
	var missing []events.Draft
	for _, d := range p.drafts {
		d = h.settledOnce(d)
		at, known := h.events[d.ID]
		if !known {
			missing = append(missing, d)
			continue
		}
		mine, err := digestOf(d)
		if err != nil {
			return nil, err
		}
		if mine == at.digest {
			continue
		}
		rest, grown, ok := h.rest(d)
		switch {
		case !ok:
			return nil, fmt.Errorf("revision %d of %s holds another %s %s: %w; import the file as it was before, or into another store",
				at.revision, p.stream, d.Event.Kind(), d.ID, ErrContradicted)
		case grown:
			missing = append(missing, rest)
		}
	}
	return missing, nil
}

// settledOnce turns the settlement of a call that another event on record has
// settled into a late result, and has a late result name the settlement that
// stands.
func (h *holding) settledOnce(d events.Draft) events.Draft {
	switch e := d.Event.(type) {
	case events.CallSettled:
		stands := h.settled[asked{e.Message, e.Call}]
		if stands.IsZero() || stands == d.ID {
			return d
		}
		text := e.Text
		if text == "" {
			text = e.Content.Text()
		}
		d.ID = derive[domain.EventID](domain.IDFromBytes, d.Time, "late", d.ID.String())
		d.Causation = stands
		d.Event = events.LateResultObserved{
			Message: e.Message, Call: e.Call, Tool: e.Tool, Settlement: stands, Outcome: e.Outcome, Text: text, Structured: e.Structured,
		}
	case events.LateResultObserved:
		if stands := h.settled[asked{e.Message, e.Call}]; !stands.IsZero() {
			e.Settlement, d.Causation = stands, stands
			d.Event = e
		}
	}
	return d
}

// rest returns what a draft says beyond what is on record of the same event,
// and whether there is any. It is not ok if the two do not fit. The opening of
// a session fits as it is: what it did not know then stays unknown.
func (h *holding) rest(d events.Draft) (rest events.Draft, grown, ok bool) {
	switch e := d.Event.(type) {
	case events.SessionOpened:
		return events.Draft{}, false, true
	case events.TurnMaterialized:
		tools := slices.Clone(h.turns[e.Turn])
		for _, o := range e.Tools {
			if !slices.Contains(tools, o) {
				tools = append(tools, o)
			}
		}
		grown = len(tools) > len(h.turns[e.Turn])
		e.Tools = tools
		rest := d
		rest.Event = e
		rest.ID = derive[domain.EventID](domain.IDFromBytes, d.Time, "rest", d.ID.String(), fmt.Sprint(len(tools)))
		return rest, grown, true
	case events.ReplyReceived:
		return h.restOfReply(d, e)
	}
	return events.Draft{}, false, false
}

// restOfReply returns the part of a reply behind what is on record of it. A
// file that ends earlier than the record has none.
func (h *holding) restOfReply(d events.Draft, e events.ReplyReceived) (rest events.Draft, grown, ok bool) {
	held := h.replies[e.Message]
	both := min(len(held.Calls), len(e.Calls))
	if !strings.HasPrefix(e.Text, held.Text) && !strings.HasPrefix(held.Text, e.Text) || !sameCalls(held.Calls[:both], e.Calls[:both]) {
		return events.Draft{}, false, false
	}
	more := e
	more.Text = e.Text[min(len(held.Text), len(e.Text)):]
	more.Calls = e.Calls[both:]
	more.Tokens = events.Tokens{
		Input: max(0, e.Tokens.Input-held.Tokens.Input), Output: max(0, e.Tokens.Output-held.Tokens.Output),
		CacheRead: max(0, e.Tokens.CacheRead-held.Tokens.CacheRead), CacheWrite: max(0, e.Tokens.CacheWrite-held.Tokens.CacheWrite),
	}
	grown = more.Text != "" || len(more.Calls) > 0 || more.Tokens != events.Tokens{} || held.Finish == "" && e.Finish != ""
	d.ID = derive[domain.EventID](domain.IDFromBytes, d.Time, "rest", d.ID.String(),
		fmt.Sprint(len(held.Text), len(held.Calls), held.Tokens, held.Finish))
	d.Event = more
	return d, grown, true
}

func sameCalls(a, b []domain.Call) bool {
	return slices.EqualFunc(a, b, func(a, b domain.Call) bool {
		x, err := json.Marshal(a)
		if err != nil {
			return false
		}
		y, err := json.Marshal(b)
		return err == nil && string(x) == string(y)
	})
}
