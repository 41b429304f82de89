package events

import "github.com/settlement-ledger/ledger/domain"

// The codec supports the kinds that make up most of a long log. Each fields
// method visits the keys in the order of the struct fields, under the rules of
// their JSON tags.

// write encodes an event and reports whether the codec supports it.
func (c *codec) write(e Event) bool {
	c.literal("{")
	switch e := e.(type) {
	case SessionOpened:
		e.fields(c)
	case PromptAdmitted:
		e.fields(c)
	case TurnMaterialized:
		e.fields(c)
	case ReplyReceived:
		e.fields(c)
	case CallStarted:
		e.fields(c)
	case CallSettled:
		e.fields(c)
	case PermissionRequested:
		e.fields(c)
	case PermissionDecided:
		e.fields(c)
	default:
		c.fail()
	}
	c.literal("}")
	return !c.failed
}

// read decodes a document of a kind in its latest version. It returns nil if
// the codec does not support the kind or the document.
func (c *codec) read(kind string) Event {
	c.literal("{")
	if c.failed {
		return nil
	}
	switch kind {
	case "SessionOpened":
		return decodeFields(c, SessionOpened{}, (*SessionOpened).fields)
	case "PromptAdmitted":
		return decodeFields(c, PromptAdmitted{}, (*PromptAdmitted).fields)
	case "TurnMaterialized":
		return decodeFields(c, TurnMaterialized{}, (*TurnMaterialized).fields)
	case "ReplyReceived":
		return decodeFields(c, ReplyReceived{}, (*ReplyReceived).fields)
	case "CallStarted":
		return decodeFields(c, CallStarted{}, (*CallStarted).fields)
	case "CallSettled":
		return decodeFields(c, CallSettled{}, (*CallSettled).fields)
	case "PermissionRequested":
		return decodeFields(c, PermissionRequested{}, (*PermissionRequested).fields)
	case "PermissionDecided":
		return decodeFields(c, PermissionDecided{}, (*PermissionDecided).fields)
	}
	return nil
}

// decodeFields decodes the fields of an event up to the end of the document.
// It returns nil if the codec failed.
func decodeFields[E Event](c *codec, e E, keys func(*E, *codec)) Event {
	keys(&e, c)
	c.literal("}")
	if !c.complete() {
		return nil
	}
	return e
}

func (e *SessionOpened) fields(c *codec) {
	idField(c, `"session":`, &e.Session, always)
	nameField(c, `"agent":`, &e.Agent, always)
	nameField(c, `"location":`, &e.Location, e.Location != "")
	nameField(c, `"model":`, &e.Model, e.Model != "")
	idField(c, `"parent":`, &e.Parent, !e.Parent.IsZero())
	if c.key(`"origin":`, always) {
		c.literal("{")
		nameField(c, `"kind":`, &e.Origin.Kind, always)
		nameField(c, `"format":`, &e.Origin.Format, e.Origin.Format != "")
		textField(c, `"source":`, &e.Origin.Source, e.Origin.Source != "")
		c.literal("}")
	}
}

func (e *PromptAdmitted) fields(c *codec) {
	idField(c, `"message":`, &e.Message, always)
	textField(c, `"text":`, &e.Text, always)
	listField(c, `"media":`, &e.Media, len(e.Media) > 0, contentElement)
}

func (e *TurnMaterialized) fields(c *codec) {
	idField(c, `"turn":`, &e.Turn, always)
	idField(c, `"message":`, &e.Message, always)
	nameField(c, `"agent":`, &e.Agent, always)
	nameField(c, `"model":`, &e.Model, e.Model != "")
	listField(c, `"tools":`, &e.Tools, always, offeredElement)
	listField(c, `"hidden":`, &e.Hidden, len(e.Hidden) > 0, hiddenElement)
	c.boolField(`"disabled":`, &e.Disabled, e.Disabled)
	c.boolField(`"observed":`, &e.Observed, e.Observed)
	nameField(c, `"rules":`, &e.Rules, e.Rules != "")
}

func hiddenElement(c *codec, h *HiddenTool) {
	c.literal("{")
	c.offeredKeys(&h.Offered)
	c.ruleField(`"rule":`, &h.Rule, always)
	c.literal("}")
}

func (c *codec) ruleField(key string, r *domain.Rule, present bool) {
	if c.key(key, present) {
		ruleElement(c, r)
	}
}

func ruleElement(c *codec, r *domain.Rule) {
	c.literal("{")
	nameField(c, `"action":`, &r.Action, always)
	textField(c, `"resource":`, &r.Resource, always)
	enumField(c, `"effect":`, &r.Effect, always)
	nameField(c, `"source":`, &r.Source, r.Source != "")
	c.literal("}")
}

func (e *ReplyReceived) fields(c *codec) {
	idField(c, `"turn":`, &e.Turn, always)
	idField(c, `"message":`, &e.Message, always)
	textField(c, `"text":`, &e.Text, e.Text != "")
	listField(c, `"calls":`, &e.Calls, len(e.Calls) > 0, callElement)
	nameField(c, `"model":`, &e.Model, e.Model != "")
	if c.key(`"tokens":`, e.Tokens != Tokens{}) {
		c.literal("{")
		c.intField(`"input":`, &e.Tokens.Input, e.Tokens.Input != 0)
		c.intField(`"output":`, &e.Tokens.Output, e.Tokens.Output != 0)
		c.intField(`"cache_read":`, &e.Tokens.CacheRead, e.Tokens.CacheRead != 0)
		c.intField(`"cache_write":`, &e.Tokens.CacheWrite, e.Tokens.CacheWrite != 0)
		c.literal("}")
	}
	nameField(c, `"finish":`, &e.Finish, e.Finish != "")
	textField(c, `"thinking":`, &e.Thinking, e.Thinking != "")
}

func callElement(c *codec, call *domain.Call) {
	c.literal("{")
	nameField(c, `"call":`, &call.ID, always)
	nameField(c, `"tool":`, &call.Name, always)
	c.rawField(`"input":`, &call.Input, len(call.Input) > 0)
	c.literal("}")
}

func (e *CallStarted) fields(c *codec) {
	idField(c, `"turn":`, &e.Turn, always)
	idField(c, `"message":`, &e.Message, always)
	nameField(c, `"call":`, &e.Call, always)
	nameField(c, `"tool":`, &e.Tool, always)
	c.offeredField(`"offered":`, &e.Offered, always)
	c.offeredField(`"effective":`, &e.Effective, always)
	c.rawField(`"input":`, &e.Input, len(e.Input) > 0)
	c.boolField(`"idempotent":`, &e.Idempotent, e.Idempotent)
	idField(c, `"process":`, &e.Process, !e.Process.IsZero())
}

func (c *codec) offeredField(key string, v *domain.Offered, present bool) {
	if c.key(key, present) {
		offeredElement(c, v)
	}
}

func (e *CallSettled) fields(c *codec) {
	idField(c, `"turn":`, &e.Turn, !e.Turn.IsZero())
	idField(c, `"message":`, &e.Message, always)
	nameField(c, `"call":`, &e.Call, always)
	nameField(c, `"tool":`, &e.Tool, always)
	enumField(c, `"outcome":`, &e.Outcome, always)
	c.boolField(`"began":`, &e.Began, always)
	enumField(c, `"interruption":`, &e.Interruption, e.Interruption != 0)
	textField(c, `"text":`, &e.Text, e.Text != "")
	textField(c, `"detail":`, &e.Detail, e.Detail != "")
	c.ruleField(`"rule":`, &e.Rule, e.Rule != domain.Rule{})
	c.rawField(`"input":`, &e.Input, len(e.Input) > 0)
	c.rawField(`"structured":`, &e.Structured, len(e.Structured) > 0)
	listField(c, `"content":`, &e.Content, len(e.Content) > 0, contentElement)
	listField(c, `"retained":`, &e.Retained, len(e.Retained) > 0, retainedElement)
	c.intField(`"lost":`, &e.Lost, e.Lost != 0)
	e.progressField(c)
	c.offeredField(`"offered":`, &e.Offered, !e.Offered.IsZero())
	c.offeredField(`"effective":`, &e.Effective, !e.Effective.IsZero())
	c.boolField(`"agrees":`, &e.Agrees, always)
	idField(c, `"changed_by":`, &e.ChangedBy, !e.ChangedBy.IsZero())
	listField(c, `"allowed":`, &e.Allowed, len(e.Allowed) > 0, ruleElement)
}

// progressField fails for a settlement with progress, which a successful call
// does not have.
func (e *CallSettled) progressField(c *codec) {
	if !c.reading && e.Progress != nil {
		c.fail()
	}
}

// contentElement encodes or decodes a text part. It fails on media: encoding
// base64 dominates their cost.
func contentElement(c *codec, part *domain.Content) {
	if c.reading {
		c.literal(`{"type":"text"`)
		var t domain.Text
		if !c.failed {
			textField(c, `"text":`, &t, always)
		}
		c.literal("}")
		*part = t
		return
	}
	t, ok := (*part).(domain.Text)
	if !ok {
		c.fail()
		return
	}
	c.literal(`{"type":"text"`)
	textField(c, `"text":`, &t, t != "")
	c.literal("}")
}

func retainedElement(c *codec, r *domain.Retained) {
	c.literal("{")
	if c.key(`"ref":`, always) {
		if c.reading {
			if r.Ref.UnmarshalText(c.readPlainString()) != nil {
				c.fail()
			}
		} else {
			c.buf = appendString(c.buf, r.Ref.String())
		}
	}
	c.intField(`"bytes":`, &r.Bytes, always)
	c.intField(`"lines":`, &r.Lines, always)
	nameField(c, `"mime":`, &r.MIME, always)
	textField(c, `"sha256":`, &r.SHA256, always)
	c.literal("}")
}

func (e *PermissionRequested) fields(c *codec) {
	idField(c, `"permission":`, &e.Permission, always)
	idField(c, `"message":`, &e.Message, always)
	nameField(c, `"call":`, &e.Call, always)
	nameField(c, `"agent":`, &e.Agent, always)
	nameField(c, `"action":`, &e.Action, always)
	c.stringsField(`"resources":`, &e.Resources, always)
	c.stringsField(`"save":`, &e.Save, len(e.Save) > 0)
	c.rawField(`"metadata":`, &e.Metadata, len(e.Metadata) > 0)
	c.previewField(`"shown":`, &e.Shown, !e.Shown.IsZero())
}

func (c *codec) previewField(key string, s *domain.Preview, present bool) {
	if c.key(key, present) {
		c.literal("{")
		nameField(c, `"kind":`, &s.Kind, always)
		textField(c, `"text":`, &s.Text, always)
		c.intField(`"bytes":`, &s.Bytes, always)
		c.intField(`"cut":`, &s.Cut, s.Cut != 0)
		textField(c, `"sha256":`, &s.SHA256, always)
		c.literal("}")
	}
}

func (e *PermissionDecided) fields(c *codec) {
	idField(c, `"permission":`, &e.Permission, always)
	enumField(c, `"effect":`, &e.Effect, always)
	nameField(c, `"by":`, &e.By, always)
	c.ruleField(`"rule":`, &e.Rule, e.Rule != domain.Rule{})
	nameField(c, `"scope":`, &e.Scope, always)
	textField(c, `"feedback":`, &e.Feedback, e.Feedback != "")
	c.intField(`"waited_ms":`, &e.WaitedMS, always)
	nameField(c, `"person":`, &e.Person, e.Person != "")
}

func (m *metadata) fields(c *codec) {
	c.literal("{")
	idField(c, `"$correlationId":`, &m.Correlation, !m.Correlation.IsZero())
	idField(c, `"$causationId":`, &m.Causation, !m.Causation.IsZero())
	c.literal("}")
}
