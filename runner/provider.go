package runner

import (
	"context"
	"iter"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// A Provider sends turns to one model and streams its replies.
type Provider interface {
	// Reply sends a turn to the model and yields the parts of its reply in order.
	// It yields an error at most once, last, with a nil Part; the runner then
	// discards the reply. If the turn breaks a restriction of the model, Reply
	// yields an error without sending it. Reply is safe for concurrent use for
	// different sessions.
	Reply(ctx context.Context, turn Turn) iter.Seq2[Part, error]
}

// A Turn is the request to a model: the conversation and the tools that it may call. The
// runner owns it; a provider must not change it.
type Turn struct {
	Session      domain.SessionID
	ID           domain.TurnID
	Message      domain.MessageID // ID of the reply
	Agent        domain.AgentID
	Model        string
	Conversation *conversation.State
	Tools        []domain.Definition
	Disabled     bool // tools are disabled: this is the last step allowed
}

// A Part is a piece of a reply: [TextPart], [CallPart] or [FinishPart].
type Part interface{ part() }

// A TextPart is text that follows the text of earlier parts.
type TextPart string

// A CallPart is a call that the model makes.
type CallPart domain.Call

// A FinishPart ends a reply, with the provider's finish reason and token counts.
type FinishPart struct {
	Reason string // the provider's finish reason
	Model  string // the model that replied, if it is not the one of the turn
	Tokens events.Tokens
}

func (TextPart) part()   {}
func (CallPart) part()   {}
func (FinishPart) part() {}
