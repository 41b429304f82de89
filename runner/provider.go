package runner

import (
	"context"
	"iter"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// A Provider sends turns to one model and streams its replies. It is safe for concurrent
// use for different sessions.
type Provider interface {
	// Reply sends a turn to the model and yields the parts of its reply in order,
	// usually with a FinishPart last. It yields an error only as its last element, with
	// a nil Part; the runner then discards the reply and ends the run with this error.
	// If the turn breaks a restriction of the model, Reply yields an error without
	// sending the turn. Reply ends when ctx ends. It does not retain the turn.
	Reply(ctx context.Context, turn Turn) iter.Seq2[Part, error]
}

// A ModelNamer is a Provider that knows the model of the next reply.
type ModelNamer interface {
	Provider
	// NextModel returns the name of the provider, and the model of the next reply to a
	// session. An empty model is that of the session. It does not retain the session.
	NextModel(*conversation.State) (provider, model string)
}

// A Turn is the request to a model: the conversation and the tools that it may call. The
// runner owns it; a provider must not change it.
type Turn struct {
	Session domain.SessionID
	ID      domain.TurnID
	// Message is the ID of the reply.
	Message domain.MessageID
	Agent   domain.AgentID
	// Model is the name of the requested model.
	Model string
	// System is the system prompt. It may be empty.
	System string
	// Conversation has the messages of the session.
	Conversation *conversation.State
	// Tools are the definitions of the offered tools, in the order of the offer.
	Tools []domain.Definition
	// Disabled is set if tools are disabled because this is the last step allowed. The
	// model should reply in text.
	Disabled bool
}

// A Part is a piece of a reply: [TextPart], [CallPart] or [FinishPart].
type Part interface{ part() }

// A TextPart is text that follows the text of earlier parts without a separator.
type TextPart string

// A CallPart is a call that the model makes. Its ID must be unique in the reply.
type CallPart domain.Call

// A FinishPart ends a reply, with the provider's finish reason and token counts.
type FinishPart struct {
	// Reason is the provider's finish reason, recorded unchanged.
	Reason string
	// Model is the model that replied. Empty: it is the model of the turn.
	Model  string
	Tokens events.Tokens
}

func (TextPart) part()   {}
func (CallPart) part()   {}
func (FinishPart) part() {}
