package events

import "github.com/settlement-ledger/ledger/domain"

// The kinds that have a form are those that a long log is made of. Each goes
// through its keys in the order of its fields, under the rules of their tags.

// write appends the JSON of an event and reports whether it has a form that
// does.
func (f *form) write(e Event) bool {
	f.token("{")
	switch e := e.(type) {
	case SessionOpened:
		e.form(f)
	case PromptAdmitted:
		e.form(f)
	case TurnMaterialized:
		e.form(f)
	case ReplyReceived:
		e.form(f)
	case CallStarted:
		e.form(f)
	case CallSettled:
		e.form(f)
	case PermissionRequested:
		e.form(f)
	case PermissionDecided:
		e.form(f)
	default:
		f.fail()
	}
	f.token("}")
	return !f.failed
}

// read returns the event of a kind whose JSON in its last version is the
// document, and nil where no form does.
func (f *form) read(kind string) Event {
	f.token("{")
	if f.failed {
		return nil
	}
	switch kind {
	case "SessionOpened":
		return formed(f, SessionOpened{}, (*SessionOpened).form)
	case "PromptAdmitted":
		return formed(f, PromptAdmitted{}, (*PromptAdmitted).form)
	case "TurnMaterialized":
		return formed(f, TurnMaterialized{}, (*TurnMaterialized).form)
	case "ReplyReceived":
		return formed(f, ReplyReceived{}, (*ReplyReceived).form)
	case "CallStarted":
		return formed(f, CallStarted{}, (*CallStarted).form)
	case "CallSettled":
		return formed(f, CallSettled{}, (*CallSettled).form)
	case "PermissionRequested":
		return formed(f, PermissionRequested{}, (*PermissionRequested).form)
	case "PermissionDecided":
		return formed(f, PermissionDecided{}, (*PermissionDecided).form)
	}
	return nil
}

func formed[E Event](f *form, e E, keys func(*E, *form)) Event {
	keys(&e, f)
	f.token("}")
	if !f.done() {
		return nil
	}
	return e
}

func (e *SessionOpened) form(f *form) {
	id(f, `"session":`, &e.Session, always)
	name(f, `"agent":`, &e.Agent, always)
	name(f, `"location":`, &e.Location, e.Location != "")
	name(f, `"model":`, &e.Model, e.Model != "")
	id(f, `"parent":`, &e.Parent, !e.Parent.IsZero())
	if f.key(`"origin":`, always) {
		f.token("{")
		name(f, `"kind":`, &e.Origin.Kind, always)
		name(f, `"format":`, &e.Origin.Format, e.Origin.Format != "")
		text(f, `"source":`, &e.Origin.Source, e.Origin.Source != "")
		f.token("}")
	}
}

func (e *PromptAdmitted) form(f *form) {
	id(f, `"message":`, &e.Message, always)
	text(f, `"text":`, &e.Text, always)
	list(f, `"media":`, &e.Media, len(e.Media) > 0, content)
}

func (e *TurnMaterialized) form(f *form) {
	id(f, `"turn":`, &e.Turn, always)
	id(f, `"message":`, &e.Message, always)
	name(f, `"agent":`, &e.Agent, always)
	name(f, `"model":`, &e.Model, e.Model != "")
	list(f, `"tools":`, &e.Tools, always, offered)
	list(f, `"hidden":`, &e.Hidden, len(e.Hidden) > 0, hidden)
	f.truth(`"disabled":`, &e.Disabled, e.Disabled)
	f.truth(`"observed":`, &e.Observed, e.Observed)
	name(f, `"rules":`, &e.Rules, e.Rules != "")
}

func hidden(f *form, h *HiddenTool) {
	f.token("{")
	f.offeredKeys(&h.Offered)
	f.rule(`"rule":`, &h.Rule, always)
	f.token("}")
}

func (f *form) rule(key string, r *domain.Rule, present bool) {
	if f.key(key, present) {
		ruleElement(f, r)
	}
}

func ruleElement(f *form, r *domain.Rule) {
	f.token("{")
	name(f, `"action":`, &r.Action, always)
	text(f, `"resource":`, &r.Resource, always)
	word(f, `"effect":`, &r.Effect, always)
	name(f, `"source":`, &r.Source, r.Source != "")
	f.token("}")
}

func (e *ReplyReceived) form(f *form) {
	id(f, `"turn":`, &e.Turn, always)
	id(f, `"message":`, &e.Message, always)
	text(f, `"text":`, &e.Text, e.Text != "")
	list(f, `"calls":`, &e.Calls, len(e.Calls) > 0, asked)
	name(f, `"model":`, &e.Model, e.Model != "")
	if f.key(`"tokens":`, e.Tokens != Tokens{}) {
		f.token("{")
		f.number(`"input":`, &e.Tokens.Input, e.Tokens.Input != 0)
		f.number(`"output":`, &e.Tokens.Output, e.Tokens.Output != 0)
		f.number(`"cache_read":`, &e.Tokens.CacheRead, e.Tokens.CacheRead != 0)
		f.number(`"cache_write":`, &e.Tokens.CacheWrite, e.Tokens.CacheWrite != 0)
		f.token("}")
	}
	name(f, `"finish":`, &e.Finish, e.Finish != "")
	text(f, `"thinking":`, &e.Thinking, e.Thinking != "")
}

func asked(f *form, c *domain.Call) {
	f.token("{")
	name(f, `"call":`, &c.ID, always)
	name(f, `"tool":`, &c.Name, always)
	f.raw(`"input":`, &c.Input, len(c.Input) > 0)
	f.token("}")
}

func (e *CallStarted) form(f *form) {
	id(f, `"turn":`, &e.Turn, always)
	id(f, `"message":`, &e.Message, always)
	name(f, `"call":`, &e.Call, always)
	name(f, `"tool":`, &e.Tool, always)
	f.offered(`"offered":`, &e.Offered, always)
	f.offered(`"effective":`, &e.Effective, always)
	f.raw(`"input":`, &e.Input, len(e.Input) > 0)
	f.truth(`"idempotent":`, &e.Idempotent, e.Idempotent)
	id(f, `"process":`, &e.Process, !e.Process.IsZero())
}

func (f *form) offered(key string, v *domain.Offered, present bool) {
	if f.key(key, present) {
		offered(f, v)
	}
}

func (e *CallSettled) form(f *form) {
	id(f, `"turn":`, &e.Turn, !e.Turn.IsZero())
	id(f, `"message":`, &e.Message, always)
	name(f, `"call":`, &e.Call, always)
	name(f, `"tool":`, &e.Tool, always)
	word(f, `"outcome":`, &e.Outcome, always)
	f.truth(`"began":`, &e.Began, always)
	word(f, `"interruption":`, &e.Interruption, e.Interruption != 0)
	text(f, `"text":`, &e.Text, e.Text != "")
	text(f, `"detail":`, &e.Detail, e.Detail != "")
	f.rule(`"rule":`, &e.Rule, e.Rule != domain.Rule{})
	f.raw(`"input":`, &e.Input, len(e.Input) > 0)
	f.raw(`"structured":`, &e.Structured, len(e.Structured) > 0)
	list(f, `"content":`, &e.Content, len(e.Content) > 0, content)
	list(f, `"retained":`, &e.Retained, len(e.Retained) > 0, retained)
	f.number(`"lost":`, &e.Lost, e.Lost != 0)
	e.formProgress(f)
	f.offered(`"offered":`, &e.Offered, !e.Offered.IsZero())
	f.offered(`"effective":`, &e.Effective, !e.Effective.IsZero())
	f.truth(`"agrees":`, &e.Agrees, always)
	id(f, `"changed_by":`, &e.ChangedBy, !e.ChangedBy.IsZero())
	list(f, `"allowed":`, &e.Allowed, len(e.Allowed) > 0, ruleElement)
}

// formProgress has no form: a call that ended in success has no progress.
func (e *CallSettled) formProgress(f *form) {
	if !f.reading && e.Progress != nil {
		f.fail()
	}
}

// content is a text. Media have no form: what they cost is their base64.
func content(f *form, c *domain.Content) {
	if f.reading {
		f.token(`{"type":"text"`)
		var t domain.Text
		if !f.failed {
			text(f, `"text":`, &t, always)
		}
		f.token("}")
		*c = t
		return
	}
	t, ok := (*c).(domain.Text)
	if !ok {
		f.fail()
		return
	}
	f.token(`{"type":"text"`)
	text(f, `"text":`, &t, t != "")
	f.token("}")
}

func retained(f *form, r *domain.Retained) {
	f.token("{")
	if f.key(`"ref":`, always) {
		if f.reading {
			if r.Ref.UnmarshalText(f.quoted()) != nil {
				f.fail()
			}
		} else {
			f.b = appendString(f.b, r.Ref.String())
		}
	}
	f.number(`"bytes":`, &r.Bytes, always)
	f.number(`"lines":`, &r.Lines, always)
	name(f, `"mime":`, &r.MIME, always)
	text(f, `"sha256":`, &r.SHA256, always)
	f.token("}")
}

func (e *PermissionRequested) form(f *form) {
	id(f, `"permission":`, &e.Permission, always)
	id(f, `"message":`, &e.Message, always)
	name(f, `"call":`, &e.Call, always)
	name(f, `"agent":`, &e.Agent, always)
	name(f, `"action":`, &e.Action, always)
	f.strings(`"resources":`, &e.Resources, always)
	f.strings(`"save":`, &e.Save, len(e.Save) > 0)
	f.raw(`"metadata":`, &e.Metadata, len(e.Metadata) > 0)
	f.shown(`"shown":`, &e.Shown, !e.Shown.IsZero())
}

func (f *form) shown(key string, s *domain.Shown, present bool) {
	if f.key(key, present) {
		f.token("{")
		name(f, `"kind":`, &s.Kind, always)
		text(f, `"text":`, &s.Text, always)
		f.number(`"bytes":`, &s.Bytes, always)
		f.number(`"cut":`, &s.Cut, s.Cut != 0)
		text(f, `"sha256":`, &s.SHA256, always)
		f.token("}")
	}
}

func (e *PermissionDecided) form(f *form) {
	id(f, `"permission":`, &e.Permission, always)
	word(f, `"effect":`, &e.Effect, always)
	name(f, `"by":`, &e.By, always)
	f.rule(`"rule":`, &e.Rule, e.Rule != domain.Rule{})
	name(f, `"scope":`, &e.Scope, always)
	text(f, `"feedback":`, &e.Feedback, e.Feedback != "")
	f.number(`"waited_ms":`, &e.WaitedMS, always)
	name(f, `"person":`, &e.Person, e.Person != "")
}

func (m *metadata) form(f *form) {
	f.token("{")
	id(f, `"$correlationId":`, &m.Correlation, !m.Correlation.IsZero())
	id(f, `"$causationId":`, &m.Causation, !m.Causation.IsZero())
	f.token("}")
}
