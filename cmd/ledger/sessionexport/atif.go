package sessionexport

import (
	"bufio"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/views"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// atifVersion is the version of ATIF that is written.
const atifVersion = "ATIF-v1.8"

// maxDepth is the maximum depth of the trajectories of subsessions, as the script provider
// reads them.
const maxDepth = 16

// An atifStep is a step of a trajectory.
type atifStep struct {
	ID          int              `json:"step_id"`
	Timestamp   render.Timestamp `json:"timestamp"`
	Source      string           `json:"source"` // user, agent or system
	Model       string           `json:"model_name,omitempty"`
	Message     any              `json:"message"` // a text, or parts
	Reasoning   string           `json:"reasoning_content,omitempty"`
	Calls       []atifCall       `json:"tool_calls,omitempty"`
	Observation *atifObservation `json:"observation,omitempty"`
	Metrics     *atifMetrics     `json:"metrics,omitempty"`
	Extra       map[string]any   `json:"extra,omitempty"`
}

// An atifCall is a call of a reply. Its extra has the outcome.
type atifCall struct {
	ID        domain.CallID   `json:"tool_call_id"`
	Name      string          `json:"function_name"`
	Arguments json.RawMessage `json:"arguments"`
	Extra     atifCallExtra   `json:"extra"`
}

// An atifCallExtra is the part of a call for which ATIF has no member.
type atifCallExtra struct {
	Outcome string            `json:"outcome"` // open: the log has no end
	Began   bool              `json:"began"`
	Started *render.Timestamp `json:"started,omitempty"`
	Ended   *render.Timestamp `json:"ended,omitempty"`
	Detail  string            `json:"detail,omitempty"`
	Parent  domain.CallID     `json:"parent,omitempty"` // of an added call
	Result  any               `json:"result,omitempty"` // of an added call
}

// An atifObservation has what the model read of the calls of a step.
type atifObservation struct {
	Results []atifResult `json:"results"`
}

// An atifResult is the result of a call, with the trajectory of the session it started.
type atifResult struct {
	Call    domain.CallID `json:"source_call_id"`
	Content any           `json:"content,omitempty"`
	Refs    []atifRef     `json:"subagent_trajectory_ref,omitempty"`
}

// An atifRef names one of the subagent_trajectories.
type atifRef struct {
	Trajectory string `json:"trajectory_id"`
}

// atifMetrics are the token counts of a reply. Prompt tokens include the cached ones.
type atifMetrics struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Cached     int64 `json:"cached_tokens"`
}

// An atifPart is a part of a message.
type atifPart struct {
	Type   string           `json:"type"` // text or image
	Text   string           `json:"text,omitempty"`
	Source *atifImageSource `json:"source,omitempty"`
}

// An atifImageSource is an image as a data URI.
type atifImageSource struct {
	MediaType string `json:"media_type"`
	Path      string `json:"path"`
}

// writeATIF writes a session as an ATIF document, with its subsessions as trajectories in
// it.
func (e *export) writeATIF(out *bufio.Writer, known calls.Session) error {
	if err := e.writeTrajectory(out, known, 0); err != nil {
		return err
	}
	return out.WriteByte('\n')
}

// A trajectory is an ATIF document in progress.
type trajectory struct {
	out   *bufio.Writer
	steps int
	total atifMetrics
	// subsessions are the trajectories that calls of the session started.
	subsessions map[callKey]calls.Session
	referenced  map[domain.CallID]bool
}

// A callKey identifies a call in its session.
type callKey struct {
	message domain.MessageID
	call    domain.CallID
}

// writeTrajectory writes a session without a line end. Depth is the number of sessions
// above it.
func (e *export) writeTrajectory(out *bufio.Writer, known calls.Session, depth int) error {
	s, err := e.open(known)
	if err != nil {
		return err
	}
	t := &trajectory{out: out, referenced: map[domain.CallID]bool{}}
	var below []calls.Session
	if depth+1 < maxDepth && e.from.Children != nil {
		if t.subsessions, below, err = e.subsessions(s); err != nil {
			return err
		}
	}
	agent := map[string]any{"name": s.Agent, "version": "unknown"}
	if s.Model != "" {
		agent["model_name"] = s.Model
	}
	head, err := render.EncodeJSON(agent)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `{"schema_version":%q,"session_id":%q,"trajectory_id":%q,"agent":%s,"steps":[`, atifVersion, s.ID, s.ID, head)
	if err := e.read(s, func(entry timeline.Entry) error { return t.add(entry) }); err != nil {
		return err
	}
	fmt.Fprint(out, "\n]")
	if len(below) > 0 {
		fmt.Fprint(out, `,"subagent_trajectories":[`)
		for i, child := range below {
			if i > 0 {
				fmt.Fprint(out, ",")
			}
			fmt.Fprint(out, "\n")
			if err := e.writeTrajectory(out, child, depth+1); err != nil {
				return err
			}
		}
		fmt.Fprint(out, "]")
	}
	extra := map[string]any{"state": s.state(), "revision": s.Revision, "location": s.Location, "origin": s.Origin.Kind, "redacted": e.opts.Redactor != nil}
	if counts := e.opts.Redactor.Counts(); depth == 0 && len(counts) > 0 {
		extra["hidden"] = counts
	}
	end, err := render.EncodeJSON(struct {
		Metrics map[string]int64 `json:"final_metrics"`
		Extra   map[string]any   `json:"extra"`
	}{map[string]int64{
		"total_prompt_tokens": t.total.Prompt, "total_completion_tokens": t.total.Completion, "total_cached_tokens": t.total.Cached, "total_steps": int64(t.steps),
	}, extra})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, ",%s", end[1:])
	return err
}

// subsessions returns the sessions that have replies and that calls of a session started,
// by call and in order.
func (e *export) subsessions(s session) (map[callKey]calls.Session, []calls.Session, error) {
	children, err := e.from.Children(s.ID)
	if err != nil {
		return nil, nil, err
	}
	found := map[callKey]calls.Session{}
	var all []calls.Session
	ids := map[domain.CallID]bool{} // a document refers to one trajectory for a call ID
	for _, child := range children {
		if child.Replies == 0 {
			continue
		}
		key, err := e.startedBy(s.ID, child)
		if err != nil {
			return nil, nil, err
		}
		if key.call == "" || ids[key.call] {
			continue
		}
		ids[key.call] = true
		found[key] = child
		all = append(all, child)
	}
	return found, all, nil
}

// startedBy returns the call of a parent that started a session. The call is empty if it is
// not on record.
func (e *export) startedBy(parent domain.SessionID, child calls.Session) (key callKey, err error) {
	for v, err := range e.from.Ledger.Read(e.ctx, events.SessionStream(child.ID), 0) {
		if err != nil {
			return callKey{}, err
		}
		switch event := v.Event.(type) {
		case events.SessionOpened:
			if event.Parent == parent && event.ParentCall != "" {
				return callKey{event.ParentMessage, event.ParentCall}, nil
			}
		case events.SessionSpawned:
			if event.Parent == parent && event.Call != "" {
				return callKey{event.Message, event.Call}, nil
			}
		}
	}
	return key, nil
}

// add writes the step of an entry: of the user for a prompt, of the agent for a reply, and
// of the system for other events that say something. Turns and recorded texts have none.
func (t *trajectory) add(e timeline.Entry) error {
	step := atifStep{Timestamp: render.Timestamp(e.Time), Extra: map[string]any{"event": e.Place.Event}}
	switch v := e.Event.(type) {
	case events.TurnMaterialized, events.TextRecorded, events.SessionOpened:
		return nil
	case events.PromptAdmitted:
		step.Source, step.Message = "user", message(v.Text, v.Media)
		if files := withoutFiles(slices.DeleteFunc(slices.Clone(v.Media), isText)).Text(); files != "" {
			step.Extra["files"] = files
		}
	case events.ReplyReceived:
		step.Source, step.Model, step.Message, step.Reasoning = "agent", v.Model, v.Text, v.Thinking
		if v.Tokens != (events.Tokens{}) {
			step.Metrics = &atifMetrics{v.Tokens.Input + v.Tokens.CacheRead + v.Tokens.CacheWrite, v.Tokens.Output, v.Tokens.CacheRead}
			t.total.Prompt += step.Metrics.Prompt
			t.total.Completion += step.Metrics.Completion
			t.total.Cached += step.Metrics.Cached
		}
		t.addCalls(&step, e.Calls)
	case events.CallsAdded:
		step.Source, step.Message = "system", views.Describe(e.Event)
		step.Extra["kind"] = e.Event.Kind()
		added := make([]atifCall, len(e.Calls))
		for i, c := range e.Calls {
			added[i] = callOf(c)
			added[i].Extra.Parent, added[i].Extra.Result = c.Parent, resultOf(c)
		}
		step.Extra["added_calls"] = added
	default:
		step.Source, step.Message = "system", views.Describe(e.Event)
		step.Extra["kind"] = e.Event.Kind()
	}
	t.steps++
	step.ID = t.steps
	data, err := render.EncodeJSON(step)
	if err != nil {
		return err
	}
	separator := ",\n"
	if t.steps == 1 {
		separator = "\n"
	}
	_, err = fmt.Fprintf(t.out, "%s%s", separator, data)
	return err
}

// addCalls adds the calls of a reply and what the model read of them.
func (t *trajectory) addCalls(step *atifStep, asked []*timeline.Call) {
	var results []atifResult
	for _, c := range asked {
		step.Calls = append(step.Calls, callOf(c))
		result := atifResult{Call: c.Asked.ID, Content: resultOf(c)}
		if child, ok := t.subsessions[callKey{c.Message, c.Asked.ID}]; ok && !t.referenced[c.Asked.ID] {
			t.referenced[c.Asked.ID] = true
			result.Refs = []atifRef{{child.ID.String()}}
		}
		if c.End != nil || result.Refs != nil {
			results = append(results, result)
		}
	}
	if results != nil {
		step.Observation = &atifObservation{results}
	}
}

// callOf returns a call. Its input is as the model wrote it.
func callOf(c *timeline.Call) atifCall {
	call := atifCall{ID: c.Asked.ID, Name: c.Tool(), Arguments: c.Asked.Input, Extra: atifCallExtra{Outcome: outcomeOf(c), Began: len(c.Starts) > 0}}
	if len(call.Arguments) == 0 {
		call.Arguments = json.RawMessage("{}")
	}
	if len(c.Starts) > 0 {
		started := render.Timestamp(c.Starts[0].Time)
		call.Extra.Started = &started
	}
	if c.End != nil {
		ended := render.Timestamp(c.End.Time)
		call.Extra.Ended, call.Extra.Detail, call.Extra.Began = &ended, c.End.Detail, c.End.Began
	}
	return call
}

// resultOf returns what the model read of a call, or nil for an open one.
func resultOf(c *timeline.Call) any {
	if c.End == nil {
		return nil
	}
	result := c.End.Settlement(c.End.Place.Event).ToolResult()
	switch {
	case result.Error != "":
		return result.Error
	case result.Structured != nil:
		return render.Indented(result.Structured)
	case result.Content != nil:
		return message("", withoutFiles(result.Content))
	}
	return result.Text
}

// withoutFiles returns contents with a line of text in place of media that are no images,
// for which ATIF has no part.
func withoutFiles(contents domain.Contents) domain.Contents {
	kept := slices.Clone(contents)
	for i, c := range kept {
		if m, ok := c.(domain.Media); ok && !strings.HasPrefix(m.MIME, "image/") {
			kept[i] = domain.Text(fmt.Sprintf("[%s]\n", strings.TrimSpace(m.Name+" "+m.MIME+", "+render.Bytes(int64(len(m.Data))))))
		}
	}
	return kept
}

// isText reports whether a part is text.
func isText(c domain.Content) bool {
	_, ok := c.(domain.Text)
	return ok
}

// message returns a text with the texts and images of contents as a message: a string, or
// parts if there are contents.
func message(text string, contents domain.Contents) any {
	if len(contents) == 0 {
		return text
	}
	parts := []atifPart{}
	if text != "" {
		parts = append(parts, atifPart{Type: "text", Text: text})
	}
	for _, c := range contents {
		switch c := c.(type) {
		case domain.Text:
			parts = append(parts, atifPart{Type: "text", Text: string(c)})
		case domain.Media:
			if strings.HasPrefix(c.MIME, "image/") {
				parts = append(parts, atifPart{Type: "image", Source: &atifImageSource{c.MIME, c.URI()}})
			}
		}
	}
	return parts
}
