package transcripts

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A holding is what a stream has on record, as far as a chain is compared with
// it.
type holding struct {
	stream  events.Stream
	length  events.Revision
	opened  time.Time // of a session
	last    time.Time // of the last event
	first   events.SessionOpened
	ids     ids
	events  map[tail]place
	started map[asked]bool
	settled map[asked]domain.EventID
	ends    map[domain.EventID]events.CallSettled
	prompts map[domain.EventID]string
	turns   map[domain.TurnID][]domain.Offered
	replies map[domain.MessageID]events.ReplyReceived // with all that later events added
	values  map[string]string                         // of settings
}

type place struct {
	id       domain.EventID
	time     time.Time
	revision events.Revision
	digest   digest
}

// asked names a call within a session.
type asked struct {
	message domain.MessageID
	call    domain.CallID
}

// read reads a stream.
func read(ctx context.Context, l *events.Ledger, stream events.Stream) (*holding, error) {
	h := &holding{
		stream: stream, ids: ids{}, events: map[tail]place{}, started: map[asked]bool{}, settled: map[asked]domain.EventID{},
		ends: map[domain.EventID]events.CallSettled{}, prompts: map[domain.EventID]string{},
		turns: map[domain.TurnID][]domain.Offered{}, replies: map[domain.MessageID]events.ReplyReceived{}, values: map[string]string{},
	}
	for v, err := range l.Read(ctx, stream, 0) {
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
	h.length, h.last = v.Revision, v.Time
	if name := tailOf(v.ID); h.events[name].revision == 0 {
		h.events[name] = place{v.ID, v.Time, v.Revision, d}
	}
	add(h.ids, v.ID)
	switch e := v.Event.(type) {
	case events.SessionOpened:
		if h.opened.IsZero() {
			h.opened, h.first = v.Time, e
		}
	case events.LayerOpened:
		add(h.ids, e.Layer)
	case events.ToolsRegistered:
		add(h.ids, e.Scope)
	case events.PromptAdmitted:
		add(h.ids, e.Message)
		h.prompts[v.ID] = e.Text
	case events.CallStarted:
		h.started[asked{e.Message, e.Call}] = true
	case events.CallSettled:
		add(h.ids, e.Message)
		if key := (asked{e.Message, e.Call}); h.settled[key].IsZero() {
			h.settled[key] = v.ID
			e.Structured = nil
			h.ends[v.ID] = e
		}
	case events.TurnMaterialized:
		add(h.ids, e.Turn)
		for _, o := range e.Tools {
			add(h.ids, o.Layer)
			if !slices.Contains(h.turns[e.Turn], o) {
				h.turns[e.Turn] = append(h.turns[e.Turn], o)
			}
		}
	case events.ReplyReceived:
		add(h.ids, e.Message)
		h.replies[e.Message] = joined(h.replies[e.Message], e)
	case events.SettingChanged:
		h.values[e.Setting] = e.Value
	}
	return nil
}

// digestOf returns a digest of the kind, time and data of an event. Causation and
// correlation are left out, because they follow from the other events.
func digestOf(d events.Draft) (digest, error) {
	d.Causation, d.Correlation = domain.EventID{}, domain.SessionID{}
	record, err := events.Encode(d)
	return sum(record.Kind, record.Time.String(), string(record.Data)), err
}

// joined returns a reply with what a later event adds to it.
func joined(r, more events.ReplyReceived) events.ReplyReceived {
	more.Text, more.Thinking = r.Text+more.Text, r.Thinking+more.Thinking
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

// learned returns what a session on record did not know when it was opened, and
// what the chain knows.
func (h *holding) learned(c *chain) []events.Draft {
	if h.opened.IsZero() {
		return nil
	}
	var all []events.Draft
	for _, s := range []struct {
		name, was, value string
		at               time.Time
	}{
		{events.SettingModel, h.first.Model, c.model, c.modelAt},
		{events.SettingLocation, h.first.Location, c.cwd, c.cwdAt},
	} {
		if s.was == "" && s.value != "" && h.values[s.name] == "" {
			all = append(all, events.Draft{
				ID: c.event(s.at, "learned", s.name), Time: later(s.at, h.last), Event: events.SettingChanged{Setting: s.name, Value: s.value},
			})
		}
	}
	return all
}

// A verdict is how a draft compares with what is on record.
type verdict int

const (
	onRecord verdict = iota + 1
	missing
	differs // and what is on record stays
)

// compare returns what is to be added of a draft, if it is missing. One that
// says otherwise than what is on record is an ErrContradicted, unless two files
// may tell of one thing.
func (h *holding) compare(d events.Draft, lenient bool) (events.Draft, verdict, error) {
	d, stands := h.fitted(d)
	if !stands {
		return d, onRecord, nil
	}
	at, known := h.events[tailOf(d.ID)]
	if !known {
		return d, missing, nil
	}
	d.ID, d.Time = at.id, at.time
	mine, err := digestOf(d)
	if err != nil {
		return d, 0, err
	}
	if mine == at.digest {
		return d, onRecord, nil
	}
	rest, grown, ok := h.rest(d)
	switch {
	case ok && grown && h.events[tailOf(rest.ID)].revision == 0:
		return rest, missing, nil
	case ok:
		return d, onRecord, nil
	case lenient || h.sameFact(d):
		return d, differs, nil
	}
	return d, 0, fmt.Errorf("revision %d of %s holds another %s %s: %w; import the file as it was before, or into another store",
		at.revision, h.stream, d.Event.Kind(), d.ID, ErrContradicted)
}

// sameFact reports whether a draft is what is on record, as another version of
// this program read it.
func (h *holding) sameFact(d events.Draft) bool {
	switch e := d.Event.(type) {
	case events.CallSettled:
		held := h.ends[d.ID]
		return held.Text+held.Content.Text() == e.Text+e.Content.Text() && len(held.Content.Media()) == len(e.Content.Media())
	case events.PromptAdmitted:
		return e.Text != "" && strings.Contains(h.prompts[d.ID], e.Text)
	}
	return false
}

// fitted returns a draft as it goes behind what is on record, and whether it
// does at all. The settlement of a call that another event on record has settled
// becomes a late result, and a late result names the settlement that stands. A
// call does not start once it is settled, and one on record as begun ends so.
func (h *holding) fitted(d events.Draft) (events.Draft, bool) {
	switch e := d.Event.(type) {
	case events.CallStarted:
		key := asked{e.Message, e.Call}
		return d, h.started[key] || h.settled[key].IsZero()
	case events.CallSettled:
		key := asked{e.Message, e.Call}
		stands := h.settled[key]
		if stands.IsZero() {
			if h.started[key] {
				d.Event = begun(e)
			}
			return d, true
		}
		if tailOf(stands) == tailOf(d.ID) && (h.events[tailOf(stands)].time.Equal(d.Time) || h.sameFact(events.Draft{ID: stands, Event: e})) {
			return d, true
		}
		text := e.Text
		if text == "" {
			text = e.Content.Text()
		}
		d.ID = adopt(h.ids, derive[domain.EventID](domain.IDFromBytes, d.Time, "late", d.ID.String(), d.Time.String()))
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
	return d, true
}

// rest returns what a draft says beyond what is on record of the same event,
// and whether there is any. It is not ok if the two do not fit. The opening of
// a session fits as it is: what it did not know then is said by later events.
func (h *holding) rest(d events.Draft) (rest events.Draft, grown, ok bool) {
	switch e := d.Event.(type) {
	case events.SessionOpened, events.LayerOpened, events.ToolsRegistered:
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

// restOfReply returns the part of a reply beyond what is on record of it. A file
// that ends earlier than the record, or has not all of its records, has none.
func (h *holding) restOfReply(d events.Draft, e events.ReplyReceived) (rest events.Draft, grown, ok bool) {
	held := h.replies[e.Message]
	more := e
	var texts, thoughts bool
	more.Text, texts = beyond(held.Text, e.Text)
	more.Thinking, thoughts = beyond(held.Thinking, e.Thinking)
	more.Calls = nil
	for _, c := range e.Calls {
		at := slices.IndexFunc(held.Calls, func(known domain.Call) bool { return known.ID == c.ID })
		switch {
		case at < 0:
			more.Calls = append(more.Calls, c)
		case !sameCall(held.Calls[at], c):
			return events.Draft{}, false, false
		}
	}
	if !texts || !thoughts {
		return events.Draft{}, false, false
	}
	more.Tokens = events.Tokens{
		Input: max(0, e.Tokens.Input-held.Tokens.Input), Output: max(0, e.Tokens.Output-held.Tokens.Output),
		CacheRead: max(0, e.Tokens.CacheRead-held.Tokens.CacheRead), CacheWrite: max(0, e.Tokens.CacheWrite-held.Tokens.CacheWrite),
	}
	grown = more.Text != "" || more.Thinking != "" || len(more.Calls) > 0 || more.Tokens != events.Tokens{} || held.Finish == "" && e.Finish != ""
	d.ID = derive[domain.EventID](domain.IDFromBytes, d.Time, "rest", d.ID.String(),
		fmt.Sprint(len(held.Text), len(held.Calls), held.Tokens, held.Finish, len(held.Thinking)))
	d.Event = more
	return d, grown, true
}

// beyond returns what a text says behind another, and whether the two fit: one
// begins with the other, or says what stands within it.
func beyond(held, text string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, held); ok {
		return rest, true
	}
	return "", strings.Contains(held, text)
}

func sameCall(a, b domain.Call) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && string(x) == string(y)
}
