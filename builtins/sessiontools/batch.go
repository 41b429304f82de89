package sessiontools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

//go:embed batch.md
var batchDescription string

// batchArgs is the input of the tool batch.
type batchArgs struct {
	ToolCalls []batchedCall `json:"tool_calls" jsonschema:"the calls, 1 to 25"`
}

// A batchedCall is one call in the input of batch.
type batchedCall struct {
	Tool       string          `json:"tool" jsonschema:"the name of the tool"`
	Parameters json.RawMessage `json:"parameters,omitempty" jsonschema:"the input of the tool"`
}

// maxBatch is the maximum number of calls of a batch.
const maxBatch = 25

// batchSchema is the patch of the input schema of batch.
const batchSchema = `{"properties":{"tool_calls":{"type":"array","minItems":1,"maxItems":25,"items":{"properties":{
	"tool":{"minLength":1,"maxLength":64},"parameters":{"type":"object"}}}}}}`

// A batchTool is the tool batch.
type batchTool struct{ Config }

// tool returns the domain.Tool of batch. It does not promise AsksFirst, because its calls
// have effects of their own.
func (b batchTool) tool() (domain.Tool, error) {
	return domain.Make(domain.Spec[batchArgs, batchResult]{
		Description:  batchDescription,
		Input:        domain.Constrained[batchArgs](batchSchema),
		Output:       domain.Constrained[batchResult](`{"properties":{"results":{"type":"array"}}}`),
		Execute:      b.run,
		Present:      presentBatch,
		Title:        titleBatch,
		InvalidInput: explainBatch,
	})
}

// titleBatch returns the number and the tools of the calls.
func titleBatch(in batchArgs) string {
	names := make([]string, len(in.ToolCalls))
	for i, c := range in.ToolCalls {
		names[i] = c.Tool
	}
	return count(len(names), "call") + ": " + strings.Join(names, ", ")
}

// explainBatch returns the text for a batch of no calls or of too many calls, and an empty
// text for any other fault.
func explainBatch(input json.RawMessage, _ *domain.ValidationError) string {
	var in struct {
		ToolCalls []json.RawMessage `json:"tool_calls"`
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return ""
	}
	switch n := len(in.ToolCalls); {
	case n == 0:
		return fmt.Sprintf("The batch has no calls, so nothing ran. Give 1 to %d calls in tool_calls.", maxBatch)
	case n > maxBatch:
		return fmt.Sprintf("The batch has %d calls, so nothing ran. Give at most %d calls in tool_calls, and the others in another batch.", n, maxBatch)
	}
	return ""
}

// run executes one call. It settles the calls of the batch and returns their results. It
// returns a *domain.Declined if a person declined one of them without feedback, and the
// cause of ctx if ctx ended before all of them had run.
func (b batchTool) run(ctx context.Context, in batchArgs, inv domain.Invocation) (batchResult, error) {
	if i := slices.IndexFunc(in.ToolCalls, func(c batchedCall) bool { return c.Tool == nameBatch }); i >= 0 {
		return batchResult{}, domain.Fail("Call %d of the batch is itself a batch, so nothing ran. Put its calls into this batch.", i+1)
	}
	calls := make([]domain.Call, len(in.ToolCalls))
	for i, c := range in.ToolCalls {
		calls[i] = domain.Call{Name: c.Tool, Input: c.Parameters}
	}
	added, ends, err := b.Session.SettleAdded(ctx, inv, calls)
	if err != nil {
		return batchResult{}, fmt.Errorf("settle the calls of batch %s: %w", inv.Call, err)
	}
	if len(added) != len(calls) || len(ends) != len(calls) {
		return batchResult{}, errors.New("the session did not settle every call of the batch")
	}
	if ctx.Err() != nil && slices.ContainsFunc(ends, isInterrupted) {
		return batchResult{}, context.Cause(ctx)
	}
	if slices.ContainsFunc(ends, stopsRun) {
		return batchResult{}, &domain.Declined{}
	}
	return newBatchResult(added, ends), nil
}

// isInterrupted reports whether a settlement is an interruption.
func isInterrupted(end domain.Settlement) bool { return end.Outcome == domain.Interrupted }

// stopsRun reports whether a person declined a call without feedback, after which a run
// stops.
func stopsRun(end domain.Settlement) bool {
	return end.Outcome == domain.DeclinedByUser && strings.TrimSpace(end.Text) == ""
}
