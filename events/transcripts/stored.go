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

// A storedStream is the recorded contents of a stream that are needed to compare
// drafts with them. It holds the texts of replies, prompts and settlements in memory,
// and digests of all other events.
type storedStream struct {
	stream events.Stream
	length events.Revision
	// opened is the time of the opening of a session, or zero if the stream has no
	// opening. last is the time of the last event.
	opened  time.Time
	last    time.Time
	opening events.SessionOpened
	// ids has the IDs of events, messages, turns, layers and scopes in the stream.
	// events has all events, by the suffix of the event ID.
	ids    storedIDs
	events map[idSuffix]storedEvent
	// started has the calls with a recorded start. settled has the event ID of the
	// first settlement of each call. settlements has that settlement by event ID,
	// without its structured value.
	started     map[callIdentity]bool
	settled     map[callIdentity]domain.EventID
	settlements map[domain.EventID]events.CallSettled
	// prompts has the text of each prompt by event ID. turns has the offered tools of
	// each turn.
	prompts map[domain.EventID]string
	turns   map[domain.TurnID][]domain.Offered
	// replies has each reply, merged from its events.
	replies map[domain.MessageID]events.ReplyReceived
	// settings has the last value of each setting.
	settings map[string]string
}

// A storedEvent identifies an event on record, with the digest of its contents.
type storedEvent struct {
	id       domain.EventID
	time     time.Time
	revision events.Revision
	digest   contentDigest
}

// A callIdentity identifies a call within a session.
type callIdentity struct {
	message domain.MessageID
	call    domain.CallID
}

// readStored reads a stream to its end. An empty stream gives a storedStream of
// length 0.
func readStored(ctx context.Context, l *events.Ledger, stream events.Stream) (*storedStream, error) {
	h := &storedStream{
		stream: stream, ids: storedIDs{}, events: map[idSuffix]storedEvent{}, started: map[callIdentity]bool{}, settled: map[callIdentity]domain.EventID{},
		settlements: map[domain.EventID]events.CallSettled{}, prompts: map[domain.EventID]string{},
		turns: map[domain.TurnID][]domain.Offered{}, replies: map[domain.MessageID]events.ReplyReceived{}, settings: map[string]string{},
	}
	for v, err := range l.Read(ctx, stream, 0) {
		if err != nil {
			return nil, err
		}
		if err := h.addEvent(v); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// addEvent adds the next event of the stream. Of two events with one ID suffix, the
// first counts.
func (h *storedStream) addEvent(v events.Envelope) error {
	d, err := eventDigest(events.Draft{ID: v.ID, Time: v.Time, Event: v.Event})
	if err != nil {
		return err
	}
	h.length, h.last = v.Revision, v.Time
	if name := suffixOf(v.ID); h.events[name].revision == 0 {
		h.events[name] = storedEvent{v.ID, v.Time, v.Revision, d}
	}
	rememberID(h.ids, v.ID)
	switch e := v.Event.(type) {
	case events.SessionOpened:
		if h.opened.IsZero() {
			h.opened, h.opening = v.Time, e
		}
	case events.LayerOpened:
		rememberID(h.ids, e.Layer)
	case events.ToolsRegistered:
		rememberID(h.ids, e.Scope)
	case events.PromptAdmitted:
		rememberID(h.ids, e.Message)
		h.prompts[v.ID] = e.Text
	case events.CallStarted:
		h.started[callIdentity{e.Message, e.Call}] = true
	case events.CallSettled:
		rememberID(h.ids, e.Message)
		if key := (callIdentity{e.Message, e.Call}); h.settled[key].IsZero() {
			h.settled[key] = v.ID
			// sameReading compares only texts and media.
			e.Structured = nil
			h.settlements[v.ID] = e
		}
	case events.TurnMaterialized:
		rememberID(h.ids, e.Turn)
		for _, o := range e.Tools {
			rememberID(h.ids, o.Layer)
			if !slices.Contains(h.turns[e.Turn], o) {
				h.turns[e.Turn] = append(h.turns[e.Turn], o)
			}
		}
	case events.ReplyReceived:
		rememberID(h.ids, e.Message)
		h.replies[e.Message] = mergeReply(h.replies[e.Message], e)
	case events.SettingChanged:
		h.settings[e.Setting] = e.Value
	}
	return nil
}

// eventDigest returns a digest of the kind, time and data of an event. Causation and
// correlation follow from the other events and are left out.
func eventDigest(d events.Draft) (contentDigest, error) {
	d.Causation, d.Correlation = domain.EventID{}, domain.SessionID{}
	record, err := events.Encode(d)
	return sumParts(record.Kind, record.Time.String(), string(record.Data)), err
}

// mergeReply returns the reply r with the additions of a later event, more: it
// appends texts and calls and adds the tokens up.
func mergeReply(r, more events.ReplyReceived) events.ReplyReceived {
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

// learnedSettings returns events for the model and the location of the session c that
// the recorded opening and settings lack. It returns nil if no opening is recorded.
func (h *storedStream) learnedSettings(c *fileSession) []events.Draft {
	if h.opened.IsZero() {
		return nil
	}
	var all []events.Draft
	for _, s := range []struct {
		name, was, value string
		at               time.Time
	}{
		{events.SettingModel, h.opening.Model, c.model, c.modelAt},
		{events.SettingLocation, h.opening.Location, c.cwd, c.cwdAt},
	} {
		if s.was == "" && s.value != "" && h.settings[s.name] == "" {
			all = append(all, events.Draft{
				ID: c.eventID(s.at, "learned", s.name), Time: laterTime(s.at, h.last), Event: events.SettingChanged{Setting: s.name, Value: s.value},
			})
		}
	}
	return all
}

// A comparison is the result of comparing a draft with the events on record.
type comparison int

// The results of a comparison.
const (
	// recorded: the draft is on record and is not appended.
	recorded comparison = iota + 1
	// missing: the draft, or the part of it that compare returned, is to be appended.
	missing
	// differs: an event of the same name has another content. The event on record
	// stays.
	differs
)

// compare compares a draft with the recorded events of the stream and returns the
// draft to append, if any, with the comparison. It takes these steps:
//
//   - adjust brings the draft into a form that can follow them.
//   - An event with the same suffix of its ID is the same event. Its ID and time
//     replace those of the draft, so a changed time alone is no difference.
//   - Equal digests mean that the draft is recorded.
//   - A reply or turn that contains the recorded one is missing as far as it has grown:
//     compare returns the rest.
//   - For any other difference compare returns ErrContradicted, unless the two have the
//     same meaning or lenient allows a difference; then the result is differs, and the
//     event on record stays.
func (h *storedStream) compare(d events.Draft, lenient bool) (events.Draft, comparison, error) {
	d, applies := h.adjust(d)
	if !applies {
		return d, recorded, nil
	}
	at, known := h.events[suffixOf(d.ID)]
	if !known {
		return d, missing, nil
	}
	d.ID, d.Time = at.id, at.time
	mine, err := eventDigest(d)
	if err != nil {
		return d, 0, err
	}
	if mine == at.digest {
		return d, recorded, nil
	}
	rest, grown, ok := h.remainder(d)
	switch {
	case ok && grown && h.events[suffixOf(rest.ID)].revision == 0:
		return rest, missing, nil
	case ok:
		return d, recorded, nil
	case lenient || h.sameReading(d):
		return d, differs, nil
	}
	return d, 0, fmt.Errorf("revision %d of %s holds another %s %s: %w; import the file as it was before, or into another store",
		at.revision, h.stream, d.Event.Kind(), d.ID, ErrContradicted)
}

// sameReading reports whether a draft differs from the recorded event only because
// another version of this program read the same line differently. That is so if the
// texts of a settlement are the same, or if the recorded prompt contains the text of
// the prompt.
func (h *storedStream) sameReading(d events.Draft) bool {
	switch e := d.Event.(type) {
	case events.CallSettled:
		stored := h.settlements[d.ID]
		return stored.Text+stored.Content.Text() == e.Text+e.Content.Text() && len(stored.Content.Media()) == len(e.Content.Media())
	case events.PromptAdmitted:
		return e.Text != "" && strings.Contains(h.prompts[d.ID], e.Text)
	}
	return false
}

// adjust changes a draft so that it can follow the recorded events. It returns false
// if the draft does not apply, and must not be appended:
//
//   - A call on record as settled does not start afterwards.
//   - A settlement of a call that another event settled becomes a late result.
//   - A settlement of a call that started on record has an outcome of a call that began.
//   - A late result names the settlement on record.
func (h *storedStream) adjust(d events.Draft) (events.Draft, bool) {
	switch e := d.Event.(type) {
	case events.CallStarted:
		key := callIdentity{e.Message, e.Call}
		return d, h.started[key] || h.settled[key].IsZero()
	case events.CallSettled:
		key := callIdentity{e.Message, e.Call}
		// A lost call can be settled by recovery before its result is imported.
		settlement := h.settled[key]
		if settlement.IsZero() {
			if h.started[key] {
				d.Event = asBegun(e)
			}
			return d, true
		}
		if suffixOf(settlement) == suffixOf(d.ID) && (h.events[suffixOf(settlement)].time.Equal(d.Time) || h.sameReading(events.Draft{ID: settlement, Event: e})) {
			return d, true
		}
		text := e.Text
		if text == "" {
			text = e.Content.Text()
		}
		// The ID derives from that of the draft, so that a further import recognizes
		// the late result.
		d.ID = storedID(h.ids, deriveID[domain.EventID](domain.IDFromBytes, d.Time, "late", d.ID.String(), d.Time.String()))
		d.Causation = settlement
		d.Event = events.LateResultObserved{
			Message: e.Message, Call: e.Call, Tool: e.Tool, Settlement: settlement, Outcome: e.Outcome, Text: text, Structured: e.Structured,
		}
	case events.LateResultObserved:
		if settlement := h.settled[callIdentity{e.Message, e.Call}]; !settlement.IsZero() {
			e.Settlement, d.Causation = settlement, settlement
			d.Event = e
		}
	}
	return d, true
}

// remainder returns rest, the part of a draft that the recorded event lacks. grown
// reports that there is such a part. ok is false if the draft and the recorded event
// contradict each other. An opening never contradicts, because later events record
// the values that it lacks.
func (h *storedStream) remainder(d events.Draft) (rest events.Draft, grown, ok bool) {
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
		// The number of tools distinguishes this rest from the rest of a later
		// import.
		rest.ID = deriveID[domain.EventID](domain.IDFromBytes, d.Time, "rest", d.ID.String(), fmt.Sprint(len(tools)))
		return rest, grown, true
	case events.ReplyReceived:
		return h.replyRemainder(d, e)
	}
	return events.Draft{}, false, false
}

// replyRemainder returns rest, the part of a reply that the recorded reply lacks.
// grown reports that there is such a part. ok is false if the texts differ, or if a
// call in both replies differs. A reply from an older copy of the file, in which it
// was shorter, has no such part, and ok is true.
func (h *storedStream) replyRemainder(d events.Draft, e events.ReplyReceived) (rest events.Draft, grown, ok bool) {
	stored := h.replies[e.Message]
	more := e
	var texts, thoughts bool
	more.Text, texts = textRemainder(stored.Text, e.Text)
	more.Thinking, thoughts = textRemainder(stored.Thinking, e.Thinking)
	more.Calls = nil
	for _, c := range e.Calls {
		at := slices.IndexFunc(stored.Calls, func(known domain.Call) bool { return known.ID == c.ID })
		switch {
		case at < 0:
			more.Calls = append(more.Calls, c)
		// A call was imported while the model still wrote its input.
		case string(stored.Calls[at].Input) == "{}" && stored.Calls[at].Name == c.Name:
		case !sameCall(stored.Calls[at], c):
			return events.Draft{}, false, false
		}
	}
	if !texts || !thoughts {
		return events.Draft{}, false, false
	}
	more.Tokens = events.Tokens{
		Input: max(0, e.Tokens.Input-stored.Tokens.Input), Output: max(0, e.Tokens.Output-stored.Tokens.Output),
		CacheRead: max(0, e.Tokens.CacheRead-stored.Tokens.CacheRead), CacheWrite: max(0, e.Tokens.CacheWrite-stored.Tokens.CacheWrite),
	}
	grown = more.Text != "" || more.Thinking != "" || len(more.Calls) > 0 || more.Tokens != events.Tokens{} || stored.Finish == "" && e.Finish != ""
	d.ID = deriveID[domain.EventID](domain.IDFromBytes, d.Time, "rest", d.ID.String(),
		fmt.Sprint(len(stored.Text), len(stored.Calls), stored.Tokens, stored.Finish, len(stored.Thinking)))
	d.Event = more
	return d, grown, true
}

// textRemainder returns the part of a text after the stored text if the text begins
// with it. It returns an empty rest if the stored text contains the text. In all
// other cases the two contradict each other and ok is false.
func textRemainder(stored, text string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, stored); ok {
		return rest, true
	}
	return "", strings.Contains(stored, text)
}

// sameCall reports whether two calls have the same JSON.
func sameCall(a, b domain.Call) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && string(x) == string(y)
}
