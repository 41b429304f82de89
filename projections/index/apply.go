package index

import (
	"crypto/sha256"
	"database/sql/driver"
	"encoding/hex"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// The bounds of the texts that the index copies, in bytes.
const (
	textBytes    = 8192 // for search
	previewBytes = 256  // for lists
)

// apply writes the rows of one event.
func (f *filler) apply(v events.Envelope) error {
	if id, ok := v.Stream.Session(); ok {
		s, err := f.session(id, v)
		if err != nil {
			return err
		}
		if err := f.applySession(s, v); err != nil {
			return err
		}
		s.Apply(v)
		s.lastPosition = v.Position
	} else if err := f.applyLayer(v); err != nil {
		return err
	}
	switch e := v.Event.(type) {
	case events.ApprovalSaved, events.ApprovalRevoked:
		return f.applyApproval(v)
	case events.OutputPruned:
		_, err := f.exec("UPDATE outputs SET pruned_position = ?, pruned_time = ?, policy = ? WHERE output = ?", v.Position, e.Pruned, e.Policy, e.Retained.Ref)
		return err
	case events.Unknown:
		_, err := f.exec("INSERT INTO unknown_events (event, kind, version, stream, revision, position) VALUES (?, ?, ?, ?, ?, ?)",
			v.ID, e.Name, e.Version, string(v.Stream), v.Revision, v.Position)
		return err
	}
	return nil
}

// placeOf returns the place of an event.
func placeOf(v events.Envelope) calls.Place {
	return calls.Place{Event: v.ID, Revision: v.Revision, Position: v.Position}
}

// applySession writes the rows of an event of a session's stream, except the row of the
// session.
func (f *filler) applySession(s *sessionRow, v events.Envelope) error {
	switch e := v.Event.(type) {
	case events.SessionOpened:
		s.parentMessage, s.parentCall, s.openedLocation, s.versionControl = e.ParentMessage, e.ParentCall, e.Location, e.VersionControl
		if e.Origin.Kind == events.Imported && e.Origin.Source != "" {
			f.nameBegin(sessionNames, e.Origin.Source, s.number)
			f.nameWhole(sessionNames, e.Origin.Source, s.number)
			f.nameEnd(sessionNames, e.Origin.Source, s.number)
		}
	case events.SessionSpawned:
		s.parentMessage, s.parentCall = e.Message, e.Call
	case events.PromptAdmitted:
		return f.prompted(s, e, v)
	case events.TextRecorded:
		_, err := f.exec("INSERT OR IGNORE INTO recorded_texts (session, digest, revision) VALUES (?, coalesce(?, ''), ?)", s.ID, e.Digest, v.Revision)
		return err
	case events.TurnMaterialized:
		return f.materialized(s, e, v)
	case events.ReplyReceived:
		return f.replied(s, e, v)
	case events.ReplyRefused:
		return f.message(s, messageRow{id: e.Message, kind: "refused", turn: e.Turn, model: e.Model, finish: e.Finish, reason: e.Reason, text: e.Text, calls: len(e.Calls), tokens: e.Tokens}, v)
	case events.CallsAdded:
		return f.added(s, e, v)
	case events.CallStarted:
		c, err := f.call(s, e.Message, e.Call, e.Tool)
		if err == nil {
			c.Start(e, v, placeOf(v))
		}
		return err
	case events.CallSettled:
		return f.settled(s, e, v)
	case events.LateResultObserved:
		c, err := f.call(s, e.Message, e.Call, e.Tool)
		if err == nil {
			c.Late++
		}
		return err
	case events.PermissionRequested, events.PermissionDecided, events.QuestionAsked, events.QuestionAnswered:
		return f.applyPermission(s, v)
	case events.ProviderFailed:
		s.providerFailures++
		_, err := f.exec("INSERT INTO provider_failures (event, session, turn, provider, model, failure, status, attempt, request, detail, position, time) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			v.ID, s.ID, e.Turn, e.Provider, e.Model, e.Failure, known(e.Status), known(e.Attempt), e.Request, e.Detail, v.Position, v.Time)
		return err
	case events.Unknown:
		s.unknownEvents++
	}
	return nil
}

// known returns a number, or nil if it is 0, which means that it is not known.
func known(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

// A messageRow is a row of the table messages.
type messageRow struct {
	id            domain.MessageID
	kind          string // prompt, reply or refused
	turn          domain.TurnID
	model, finish string
	reason, text  string
	calls         int
	tokens        events.Tokens
}

// messageColumns are the columns of a message, in the order in which message adds them.
var messageColumns = []string{
	"id", "session", "message", "kind", "turn", "model", "finish", "reason", "text", "bytes", "calls",
	"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "event", "position", "revision", "time",
}

const extendMessage = `UPDATE messages SET model = coalesce(?, model), finish = coalesce(?, finish), bytes = bytes + ?, calls = calls + ?,
		input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, cache_read_tokens = cache_read_tokens + ?, cache_write_tokens = cache_write_tokens + ?
		WHERE session = ? AND message = ? AND kind = ?`

// message writes the row of a message, or adds to it if the message has one.
func (f *filler) message(s *sessionRow, m messageRow, v events.Envelope) error {
	key := messageKey{s.ID, m.id, m.kind}
	again, err := f.has(s, key)
	if err != nil {
		return err
	}
	f.messages[key] = true
	if again {
		if err := f.insert.messages.flush(); err != nil {
			return err
		}
		_, err := f.exec(extendMessage, m.model, m.finish, len(m.text), m.calls, m.tokens.Input, m.tokens.Output, m.tokens.CacheRead, m.tokens.CacheWrite, s.ID, m.id, m.kind)
		return err
	}
	f.last.message++
	if m.kind == "reply" {
		s.Replies++
		f.nameEnd(messageNames, m.id.String(), f.last.message)
	}
	return f.insert.messages.add(f.last.message, s.ID, m.id, m.kind, m.turn, m.model, m.finish, m.reason, cut(m.text, previewBytes), len(m.text), m.calls,
		m.tokens.Input, m.tokens.Output, m.tokens.CacheRead, m.tokens.CacheWrite, v.ID, v.Position, v.Revision, v.Time)
}

// prompted writes the rows of a prompt.
func (f *filler) prompted(s *sessionRow, e events.PromptAdmitted, v events.Envelope) error {
	if err := f.message(s, messageRow{id: e.Message, kind: "prompt", text: e.Text}, v); err != nil {
		return err
	}
	return f.text("prompt", s, e.Message, "", e.Text, v)
}

// replied writes the rows of a reply with its calls.
func (f *filler) replied(s *sessionRow, e events.ReplyReceived, v events.Envelope) error {
	err := f.message(s, messageRow{id: e.Message, kind: "reply", turn: e.Turn, model: e.Model, finish: e.Finish, text: e.Text, calls: len(e.Calls), tokens: e.Tokens}, v)
	if err != nil {
		return err
	}
	s.tokens.Input += e.Tokens.Input
	s.tokens.Output += e.Tokens.Output
	s.tokens.CacheRead += e.Tokens.CacheRead
	s.tokens.CacheWrite += e.Tokens.CacheWrite
	if err := f.text("reply", s, e.Message, "", e.Text, v); err != nil {
		return err
	}
	for _, asked := range e.Calls {
		if err := f.asked(s, e.Message, e.Turn, "", asked, v); err != nil {
			return err
		}
	}
	return nil
}

// added writes the rows of the calls that a running call made.
func (f *filler) added(s *sessionRow, e events.CallsAdded, v events.Envelope) error {
	parent, err := f.find(s, e.Message, e.Parent)
	if err != nil {
		return err
	}
	var turn domain.TurnID
	if parent != nil {
		turn = parent.Turn
	}
	for _, asked := range e.Calls {
		if err := f.asked(s, e.Message, turn, e.Parent, asked, v); err != nil {
			return err
		}
	}
	return nil
}

// asked writes the rows of a call of a reply or of a running call.
func (f *filler) asked(s *sessionRow, message domain.MessageID, turn domain.TurnID, parent domain.CallID, asked domain.Call, v events.Envelope) error {
	c, err := f.call(s, message, asked.ID, asked.Name)
	if err != nil || !c.Ask(turn, parent, asked, v, placeOf(v)) {
		return err
	}
	s.Calls++
	s.Count(&c.Call, +1)
	c.inputBytes = int64(len(asked.Input))
	for _, use := range inputPaths(asked.Name, c.Location, asked.Input) {
		if err := f.uses(c, use, fromInput); err != nil {
			return err
		}
	}
	return f.text("input", s, message, asked.ID, string(asked.Input), v)
}

// settled writes the rows of a settlement. Only the first settlement of a call counts.
func (f *filler) settled(s *sessionRow, e events.CallSettled, v events.Envelope) error {
	c, err := f.call(s, e.Message, e.Call, e.Tool)
	if err != nil || c.State == calls.Settled {
		return err
	}
	s.Count(&c.Call, -1)
	c.Settle(e, v, placeOf(v))
	s.Count(&c.Call, +1)
	f.nameBegin(callNames, v.ID.String(), c.id)
	f.nameEnd(callNames, v.ID.String(), c.id)
	for _, r := range e.Retained {
		_, err := f.exec("INSERT OR IGNORE INTO outputs (output, session, message, call, settlement, bytes, lines, mime, sha256, position) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			r.Ref, s.ID, e.Message, string(e.Call), v.ID, r.Bytes, r.Lines, r.MIME, r.SHA256, v.Position)
		if err != nil {
			return err
		}
	}
	for i, r := range e.Allowed {
		if _, err := f.exec("INSERT INTO allowed_rules (call, place, action, resource, source) VALUES (?, ?, ?, ?, ?)", c.id, i, r.Action, r.Resource, r.Source); err != nil {
			return err
		}
	}
	for _, a := range e.Files {
		f.last.file++
		_, err := f.exec("INSERT INTO files (id, path, access, version, session, message, call, position, time) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
			f.last.file, a.Path, a.Access, a.Version, s.ID, e.Message, string(e.Call), v.Position, v.Time)
		if err == nil {
			err = f.uses(c, pathUse{a.Path, resultAccess(a)}, fromResult)
		}
		if err != nil {
			return err
		}
	}
	shown := calls.Shown(e)
	c.shownBytes = int64(len(shown))
	return f.text("shown", s, e.Message, e.Call, shown, v)
}

// textColumnNames are the columns of a text, in the order in which text adds them.
var textColumnNames = []string{"id", "kind", "session", "message", "call", "position", "bytes", "text"}

// text writes a text for search, if the index has full text. It writes no row for an empty
// text.
func (f *filler) text(kind string, s *sessionRow, message domain.MessageID, call domain.CallID, text string, v events.Envelope) error {
	if text == "" || !f.progress.texts {
		return nil
	}
	f.last.text++
	stored := cut(text, textBytes)
	f.batch.textBytes += len(stored)
	err := f.insert.texts.add(f.last.text, kind, s.ID, message, string(call), v.Position, len(text), stored)
	if err == nil {
		err = f.insert.search.add(f.last.text, stored)
	}
	return err
}

// cut returns the beginning of a text: whole characters, at most n bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// turnRowColumns are the columns of a turn, in the order in which materialized adds them.
var turnRowColumns = []string{
	"session", "turn", "message", "agent", "model", "provider", "client", "offer", "hidden", "disabled", "observed",
	"system", "instruction", "rules", "rules_text", "parameters", "schemas", "compacted", "event", "position", "revision", "time", "last_position", "last_revision",
}

// materialized writes the rows of a turn. A second event of the same turn adds tools to
// its offer.
func (f *filler) materialized(s *sessionRow, e events.TurnMaterialized, v events.Envelope) error {
	tools := e.Tools
	before, err := f.offerOf(s, e.Turn)
	if err != nil {
		return err
	}
	if before != 0 {
		held, err := f.offered(before)
		if err != nil {
			return err
		}
		tools = projections.MergeOffers(held, tools)
	}
	offer, err := f.offer(tools)
	if err != nil {
		return err
	}
	f.turns[turnKey{s.ID, e.Turn}] = offer
	if before != 0 {
		if err := f.insert.turns.flush(); err != nil {
			return err
		}
		_, err := f.exec("UPDATE turns SET offer = ?, last_position = ?, last_revision = ? WHERE session = ? AND turn = ?", offer, v.Position, v.Revision, s.ID, e.Turn)
		return err
	}
	s.turns++
	at := place(v.Position)
	f.nameEnd(turnNames, e.Turn.String(), at)
	f.nameBegin(turnNames, v.ID.String(), at)
	f.nameEnd(turnNames, v.ID.String(), at)
	err = f.insert.turns.add(s.ID, e.Turn, e.Message, string(e.Agent), e.Model, e.Provider, e.Client, offer, len(e.Hidden), e.Disabled, e.Observed,
		e.System, e.Instruction, e.Rules, e.RulesText, e.Parameters, e.Schemas, e.Compacted, v.ID, v.Position, v.Revision, v.Time, v.Position, v.Revision)
	if err != nil {
		return err
	}
	for i, h := range e.Hidden {
		unmet, err := list(h.Unmet)
		if err != nil {
			return err
		}
		effect := ""
		if h.Rule != (domain.Rule{}) {
			effect = h.Rule.Effect.String()
		}
		_, err = f.exec("INSERT INTO hidden_tools (session, turn, place, tool, registration, layer, rule_action, rule_resource, rule_effect, rule_source, unmet) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			s.ID, e.Turn, i, string(h.Name), h.Registration, h.Layer, h.Rule.Action, h.Rule.Resource, effect, h.Rule.Source, unmet)
		if err != nil {
			return err
		}
	}
	return nil
}

// list returns the JSON of a list, or the empty text for an empty one.
func list[T any](all []T) (string, error) {
	if len(all) == 0 {
		return "", nil
	}
	data, err := projections.Encode(all)
	return string(data), err
}

// offerOf returns the offer of a turn, or 0 if the database does not have the turn.
func (f *filler) offerOf(s *sessionRow, turn domain.TurnID) (int64, error) {
	if offer, ok := f.turns[turnKey{s.ID, turn}]; ok || s.known {
		return offer, nil
	}
	if err := f.insert.turns.flush(); err != nil {
		return 0, err
	}
	return f.number("SELECT offer FROM turns WHERE session = ? AND turn = ?", s.ID, turn)
}

// offered returns the tools of an offer.
func (f *filler) offered(offer int64) (tools []domain.Offered, err error) {
	err = f.query(func(row []driver.Value) error {
		c, t := &columnReader{row: row}, domain.Offered{}
		t.Name = domain.Name(c.string())
		c.text(&t.Registration, &t.Layer, &t.Fingerprint)
		tools = append(tools, t)
		return c.err
	}, "SELECT tool, registration, layer, fingerprint FROM offered_tools WHERE offer = ? ORDER BY place", offer)
	return tools, err
}

// offer returns the number of an offer, and writes its rows if it is new.
func (f *filler) offer(tools []domain.Offered) (int64, error) {
	key := projections.OfferKey(tools)
	if n, ok := f.offers[key]; ok {
		return n, nil
	}
	sum := sha256.Sum256([]byte(key))
	digest := hex.EncodeToString(sum[:])
	n, err := f.number("SELECT offer FROM offers WHERE digest = ?", digest)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		f.last.offer++
		n = f.last.offer
		if _, err := f.exec("INSERT INTO offers (offer, digest, tools) VALUES (?, ?, ?)", n, digest, len(tools)); err != nil {
			return 0, err
		}
		for i, t := range tools {
			_, err := f.exec("INSERT INTO offered_tools (offer, place, tool, registration, layer, fingerprint) VALUES (?, ?, ?, ?, ?, ?)",
				n, i, string(t.Name), t.Registration, t.Layer, t.Fingerprint)
			if err != nil {
				return 0, err
			}
		}
	}
	f.offers[key] = n
	return n, nil
}
