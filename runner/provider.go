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
	// a nil Part; the runner then runs no call of the reply, records the parts as a
	// refused reply, and ends the run with this error. A *ProviderError is recorded with
	// its fields. If the turn breaks a restriction of the model, Reply yields an
	// *IncompatibleError without sending the turn. Reply ends when ctx ends. It does not
	// retain the turn.
	Reply(ctx context.Context, turn Turn) iter.Seq2[Part, error]
}

// A ModelNamer is a Provider that knows the model of the next reply.
type ModelNamer interface {
	Provider
	// NextModel returns the name of the provider, and the model of the next reply to a
	// session whose agent asks for the model agentModel, which may be empty. An empty
	// model is that of the agent, or else that of the session. NextModel does not retain
	// the session.
	NextModel(session *conversation.State, agentModel string) (provider, model string)
}

// A RequestPreparer is a Provider whose requests have parameters and schemas that turns
// record.
type RequestPreparer interface {
	Provider
	// PrepareRequest returns the record of the request that Reply sends for a turn. It
	// sends nothing. If the turn breaks a restriction of the model, it returns an
	// *IncompatibleError; the turn is then not recorded, and the run ends with this
	// error. It does not retain the turn.
	PrepareRequest(Turn) (RequestRecord, error)
}

// A RequestRecord has the parts of a request that do not come from the log. Both are JSON,
// and the same for the same parts. An empty text is not recorded.
type RequestRecord struct {
	// Parameters is the body of the request without system prompt, messages and tools.
	Parameters string
	// Schemas is the array of the tools as they are sent.
	Schemas string
}

// A ContextLimiter is a Provider that knows how many tokens a model can read.
type ContextLimiter interface {
	Provider
	// ContextLimit returns the number of tokens that a request and its reply may have
	// together, and the number of tokens that is reserved for the reply. Zero: it is not
	// known.
	ContextLimit(model string) (window, output int64)
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
	// Instruction is a text that the request has behind the messages, as a message of the
	// user. It may be empty.
	Instruction string
	// Summary is set if the turn asks for a summary of its Conversation, which then is the
	// beginning of the session. Its reply is no message of the session.
	Summary bool
}

// A Part is a piece of a reply: [TextPart], [ThinkingPart], [CallPart], [ProviderPart],
// [FailedAttemptPart] or [FinishPart].
type Part interface{ part() }

// A TextPart is text that follows the text of earlier parts without a separator.
type TextPart string

// A ThinkingPart is reasoning that follows the reasoning of earlier parts without a
// separator. It is recorded, and later requests do not contain it.
type ThinkingPart string

// A CallPart is a call that the model makes. Its ID must be unique in the reply. An input
// that is not JSON is recorded as a JSON string, and the call then ends as invalid input.
// The provider passes an input that broke off as a JSON string too, even if it is JSON.
type CallPart domain.Call

// A ProviderPart is an opaque part of the reply that later requests to the same provider
// and model contain.
type ProviderPart events.ProviderItem

// A FailedAttemptPart reports an attempt that failed before the reply had a part, and that
// the provider repeats. It is recorded as a ProviderFailed.
type FailedAttemptPart struct {
	// Attempt is the number of the attempt, counted from 1.
	Attempt int
	Err     *ProviderError
}

// A FinishPart ends a reply, with the provider's finish reason and token counts.
type FinishPart struct {
	// Reason is the provider's finish reason, recorded unchanged.
	Reason string
	// Model is the model that replied. Empty: it is the model of the turn.
	Model  string
	Tokens events.Tokens
}

func (TextPart) part()          {}
func (ThinkingPart) part()      {}
func (CallPart) part()          {}
func (ProviderPart) part()      {}
func (FailedAttemptPart) part() {}
func (FinishPart) part()        {}
