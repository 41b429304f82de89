package runner

import (
	"context"
	"iter"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// A Provider speaks for one model.
type Provider interface {
	// Reply asks the model and yields the parts of its reply in order. An error
	// comes once, last, with a nil Part; the reply is then as if it had not
	// been. A restriction of the model that the turn breaks is an error, and
	// nothing is sent. Reply is safe for concurrent use for different sessions.
	Reply(ctx context.Context, turn Turn) iter.Seq2[Part, error]
}

// A Turn is what a model is given: all of the session that it is shown, and
// what it may call. It belongs to the runner; a provider does not change it.
type Turn struct {
	Session      domain.SessionID
	ID           domain.TurnID
	Message      domain.MessageID // that the reply will be
	Agent        domain.AgentID
	Model        string
	Conversation *conversation.State
	Tools        []domain.Definition
	Disabled     bool // tools are disabled: this is the last step allowed
}

// A Part is a piece of a reply: [TextPart], [CallPart] or [FinishPart].
type Part interface{ part() }

// TextPart is text, to be joined to the text before.
type TextPart string

// CallPart is a call that the model asks for.
type CallPart domain.Call

// FinishPart says that the reply is over, and what the provider says of it.
type FinishPart struct {
	Reason string // the provider's word
	Model  string // that answered
	Tokens events.Tokens
}

func (TextPart) part()   {}
func (CallPart) part()   {}
func (FinishPart) part() {}
