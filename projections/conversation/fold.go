package conversation

import (
	"cmp"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// Projection returns the fold of one session's stream. If the events come from
// several session streams, it folds the stream that comes first and ignores the
// others.
func Projection() projections.Projection[*State] {
	return projections.Projection[*State]{
		Name: "conversation", Version: 7, Init: func() *State { return &State{} }, Apply: apply,
	}
}

// apply folds one event of the session. The first event of a session stream decides
// which session the state has.
func apply(s *State, v events.Envelope) *State {
	session, ok := v.Stream.Session()
	if !ok || !s.Session.IsZero() && session != s.Session {
		return s
	}
	if s.index == nil {
		s.index = newReplyIndex(s.Messages)
	}
	s.Session, s.Revision, s.Last = session, v.Revision, v.ID
	switch e := v.Event.(type) {
	case events.SessionOpened:
		s.Agent, s.Location, s.Model, s.Parent, s.Origin = e.Agent, e.Location, e.Model, e.Parent, e.Origin
		s.Ancestors, s.ParentMessage, s.ParentCall = e.Ancestors, e.ParentMessage, e.ParentCall
	case events.AgentSwitched:
		s.Agent = e.Agent
	case events.TextRecorded:
		s.recordText(e.Digest)
	case events.TodosReplaced:
		s.Todos = e.Todos
	case events.PromptAdmitted:
		s.prompt(e, v)
	case events.TurnMaterialized:
		s.materialized(e, v)
	case events.ReplyReceived:
		s.replied(e, v)
	case events.SessionInterrupted:
		s.Interrupted = &e
	case events.SessionClosed:
		s.Closed = true
	case events.SettingChanged:
		s.set(e)
	case events.SessionSpawned:
		s.Parent = e.Parent
	case events.SessionForked:
		s.Forked = &e
	case events.ContextCompacted:
		s.compacted(e, v.ID)
	case events.ProviderFailed:
		if s.Turn != nil && e.Turn == s.Turn.Turn && e.Failure == events.FailureContextExceeded {
			s.Exceeded = true
		}
	case events.ContextAdded, events.CommandRan: // not shown to a model
	case events.Unknown:
		if !slices.Contains(s.Unknown, e.Name) {
			s.Unknown = append(s.Unknown, e.Name)
		}
	default:
		s.applyCall(v)
		s.applyPermission(v)
	}
	return s
}

// maxTexts is the number of digests in Texts at which Texts becomes OlderTexts. A session
// has few texts, unless the description of a tool is another one for each turn.
const maxTexts = 1024

// recordText adds the digest of a text that it does not have.
func (s *State) recordText(digest string) {
	if s.HasText(digest) {
		return
	}
	if s.Texts == nil || len(s.Texts) == maxTexts {
		s.OlderTexts, s.Texts = s.Texts, map[string]bool{}
	}
	s.Texts[digest] = true
}

// HasText reports whether a text is among the last texts on record.
func (s *State) HasText(digest string) bool { return s.Texts[digest] || s.OlderTexts[digest] }

// set fills a setting that the opening of the session left empty.
func (s *State) set(e events.SettingChanged) {
	switch {
	case e.Setting == events.SettingModel && s.Model == "":
		s.Model = e.Value
	case e.Setting == events.SettingLocation && s.Location == "":
		s.Location = e.Value
	}
}

// prompt adds a prompt to the end of the messages. It ends an interruption and starts
// the count of steps again.
func (s *State) prompt(e events.PromptAdmitted, v events.Envelope) {
	s.LastPrompt = &Prompt{Text: e.Text, Media: e.Media, Event: v.ID}
	s.Messages = append(s.Messages, Message{ID: e.Message, Prompt: s.LastPrompt})
	s.Unread++
	s.Steps, s.Interrupted = 0, nil
}

// materialized folds a turn, or a further event of the last turn. The request of a
// new turn includes all prompts before it, so no prompt is unread then. A further
// event only adds tools to the offer. A request for a summary is no turn of the session.
func (s *State) materialized(e events.TurnMaterialized, v events.Envelope) {
	if !e.Summarizes.IsZero() {
		s.Interrupted = nil
		return
	}
	if s.Turn != nil && s.Turn.Turn == e.Turn {
		e.Tools = projections.MergeOffers(s.Turn.Tools, e.Tools)
	} else {
		s.Unread = 0
	}
	s.Turn, s.TurnEvent, s.Replied, s.Interrupted, s.Exceeded = &e, v.ID, false, nil, false
}

// replied folds an event of a reply. A new reply to the last turn is inserted before
// the prompts that arrived after that turn, because the model has not read these
// prompts. If there are such prompts, the reply is no step since the last prompt.
func (s *State) replied(e events.ReplyReceived, v events.Envelope) {
	// A reply to the last turn has the offer of that turn, any other one an offer
	// without tools.
	offer, agent, unread := domain.Offer{Turn: e.Turn}, s.Agent, 0
	var compacted domain.EventID
	if s.Turn != nil && s.Turn.Turn == e.Turn {
		offer, agent, compacted = s.Turn.Offer(), cmp.Or(s.Turn.Agent, agent), s.Turn.Compacted
		if !s.Replied {
			unread = s.Unread
		}
		s.Replied = true
	}
	reply, ok := s.Reply(e.Message)
	if !ok {
		s.Replies++
		reply = &Reply{Event: v.ID, Offer: offer, Agent: agent, Compacted: compacted}
		// The model has not read the prompts that came after its turn.
		s.Messages = slices.Insert(s.Messages, len(s.Messages)-unread, Message{ID: e.Message, Reply: reply})
		// A reply that did not read the last prompt is no step after it.
		if unread == 0 {
			s.Steps++
		}
	}
	reply.add(e, offer)
	if len(reply.Offer.Tools) > 0 {
		s.Offered = reply.Offer.Tools
	}
	s.indexReply(e.Message, reply)
}

// add merges one event of the reply, with the offer of its turn. If the reply already
// has a call with the same ID, the new call gets the progress of that call.
func (r *Reply) add(e events.ReplyReceived, offer domain.Offer) {
	r.Text += e.Text
	r.Items = append(r.Items, e.Items...)
	for _, c := range e.Calls {
		call := ReplyCall{Call: c, Message: e.Message}
		if twin, ok := r.twin(c.ID); ok {
			call.Started, call.StartedBy, call.Settlement, call.Late = twin.Started, twin.StartedBy, twin.Settlement, twin.Late
		}
		r.Calls = append(r.Calls, call)
	}
	r.Offer.Tools = projections.MergeOffers(r.Offer.Tools, offer.Tools)
	r.Tokens.Input += e.Tokens.Input
	r.Tokens.Output += e.Tokens.Output
	r.Tokens.CacheRead += e.Tokens.CacheRead
	r.Tokens.CacheWrite += e.Tokens.CacheWrite
	if e.Model != "" {
		r.Model = e.Model
	}
	if e.Finish != "" {
		r.Finish = e.Finish
	}
}

// twin returns the first call of the reply with this ID, and whether the reply has
// one.
func (r *Reply) twin(id domain.CallID) (ReplyCall, bool) {
	for _, c := range r.Calls {
		if c.ID == id {
			return c, true
		}
	}
	return ReplyCall{}, false
}

// applyCall folds added calls, and the start, settlement or late result of a call. The
// first start and the first settlement count.
func (s *State) applyCall(v events.Envelope) {
	switch e := v.Event.(type) {
	case events.CallsAdded:
		if reply, ok := s.Reply(e.Message); ok {
			for _, c := range e.Calls {
				reply.Added = append(reply.Added, ReplyCall{Call: c, Message: e.Message, Parent: e.Parent, AddedBy: v.ID})
			}
			s.indexReply(e.Message, reply)
		}
	case events.CallStarted:
		s.each(e.Message, e.Call, func(c *ReplyCall) {
			if c.Started == nil {
				c.Started, c.StartedBy = &e, v.ID
			}
		})
	case events.CallSettled:
		s.observe(e.Files)
		settlement := e.Settlement(v.ID)
		s.each(e.Message, e.Call, func(c *ReplyCall) {
			if c.Settlement == nil {
				c.Settlement = &settlement
			}
		})
		if reply, ok := s.Reply(e.Message); ok {
			s.indexReply(e.Message, reply)
		}
	case events.LateResultObserved:
		s.each(e.Message, e.Call, func(c *ReplyCall) { c.Late++ })
	}
}

// observe folds the files that a call read or changed.
func (s *State) observe(files []domain.FileAccess) {
	for _, f := range files {
		if s.Files == nil {
			s.Files = map[string]string{}
		}
		if f.Version == "" {
			delete(s.Files, f.Path)
			continue
		}
		s.Files[f.Path] = f.Version
	}
}

// each passes every call with this ID in the reply to a message to visit: mostly one
// call, and several if the model repeated the ID. It ignores an unknown reply.
func (s *State) each(message domain.MessageID, id domain.CallID, visit func(*ReplyCall)) {
	reply, ok := s.Reply(message)
	if !ok {
		return
	}
	for c := range reply.All() {
		if c.ID == id {
			visit(c)
		}
	}
}

// applyPermission folds the permission requests and decisions of the session, and the
// questions to a person with their answers.
func (s *State) applyPermission(v events.Envelope) {
	switch e := v.Event.(type) {
	case events.PermissionRequested:
		s.Asks = append(s.Asks, e)
	case events.PermissionDecided:
		s.Asks = slices.DeleteFunc(s.Asks, func(a events.PermissionRequested) bool { return a.Permission == e.Permission })
	case events.QuestionAsked:
		s.Questions = append(s.Questions, e)
	case events.QuestionAnswered:
		s.Questions = slices.DeleteFunc(s.Questions, func(q events.QuestionAsked) bool { return q.Question == e.Question })
	}
}
