package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// outcomeOfError maps the error of a tool to the end of its call. It checks in this
// order: a defect, a denial by a rule, a refusal by a person, an interruption, a
// failure, an invalid output. Any other error is a defect. The order matters for an
// error that matches several kinds. An error that claims an interruption while ctx is
// live is a defect.
func outcomeOfError(ctx context.Context, err error) domain.Settlement {
	if _, ok := errors.AsType[*domain.Defect](err); ok { // with any panic value
		return defective(err)
	}
	if denied, ok := errors.AsType[*domain.Denied](err); ok {
		return domain.Settlement{Outcome: domain.DeniedByRule, Text: denied.Error(), Rule: denied.Rule}
	}
	if declined, ok := errors.AsType[*domain.Declined](err); ok {
		return domain.Settlement{Outcome: domain.DeclinedByUser, Text: declined.Feedback}
	}
	if errors.Is(err, domain.ErrInterrupted) && ctx.Err() != nil {
		return domain.InterruptedWhile(domain.InterruptionOf(context.Cause(ctx)))
	}
	if failure, ok := errors.AsType[*domain.Failure](err); ok {
		return domain.Settlement{Outcome: domain.Failed, Text: failure.Error()}
	}
	if errors.Is(err, domain.ErrInvalidOutput) {
		text := "Tool returned an invalid value for its output schema: " + err.Error()
		return domain.Settlement{Outcome: domain.InvalidOutput, Text: text}
	}
	return defective(err)
}

// defective returns the end of a call whose tool failed with err, as a defect. The
// model reads the text of err. Detail also has the stack of a panic, for the operator.
func defective(err error) domain.Settlement {
	s := domain.Settlement{Outcome: domain.Defective, Text: failureText(err), Detail: err.Error()}
	if defect, ok := errors.AsType[*domain.Defect](err); ok && len(defect.Stack) > 0 {
		s.Detail += "\n" + string(defect.Stack)
	}
	return s
}

// failureText returns the text that the model reads for err. It is never empty.
func failureText(err error) string {
	if text := err.Error(); strings.TrimSpace(text) != "" {
		return "Tool execution failed: " + text
	}
	return "Tool execution failed without a message"
}

// cutEnd returns a settlement with Text cut to the limits and Detail cut to
// DefaultLimits. It removes a Rule whose patterns and source exceed the byte limit, and
// notes that in Detail.
func (l Limits) cutEnd(end domain.Settlement) domain.Settlement {
	end.Text, end.Detail = l.Cut(valid(end.Text)), DefaultLimits.Cut(valid(end.Detail))
	if r := end.Rule; len(r.Action)+len(r.Resource)+len(r.Source) > l.Bytes {
		end.Rule, end.Detail = domain.Rule{}, strings.TrimPrefix(end.Detail+"\nthe rule that denied is too long to be kept", "\n")
	}
	return end
}

// Ended returns the event of an end for a call that [Materialization.Settle] does not
// settle, such as a refused or a lost call. The caller records the event. Ended cuts
// the texts, the rule and the tool's name to the limits of r.
func (r *Registry) Ended(turn domain.TurnID, message domain.MessageID, call domain.Call, end domain.Settlement) events.CallSettled {
	return events.Settled(turn, message, domain.Call{ID: call.ID, Name: ShortName(call.Name)}, r.config.Limits.cutEnd(end))
}

// maxName bounds the bytes of a name that events and errors repeat. The grammar of names
// allows 64 bytes; a model may invent longer ones.
const maxName = 256

// ShortName returns a name of at most 256 bytes unchanged, and otherwise its first 256
// bytes and its length. The recorded reply that asks for the call has the full name.
func ShortName(name string) string {
	if len(name) <= maxName {
		return name
	}
	return fmt.Sprintf("%s... (%d bytes)", head(name, maxName), len(name))
}
