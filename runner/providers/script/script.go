package script

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
)

// The errors of this package. Callers match them with errors.Is. Parse and Load return
// ErrNotATIF. Reply yields ErrExhausted and ErrNoSubsession.
var (
	ErrNotATIF      = errors.New("not a trajectory of ATIF 1.x")
	ErrExhausted    = errors.New("the trajectory has no further reply")
	ErrNoSubsession = errors.New("the trajectory has no subsession for this call")
)

// A Script is a recorded trajectory whose replies are replayed in place of a model.
// [Parse] and [Load] make it. It is safe for concurrent use.
type Script struct {
	model           string   // model of the trajectory; may be empty
	replies         []reply  // in the order of the document
	trailingPrompts []string // prompts after the last reply
	// subsessions has the trajectory of the subsession that each call starts.
	subsessions map[domain.CallID]*Script
	// running has the trajectory of each session that asked for a reply. The trajectories
	// of one document share it.
	running *runningSessions
}

// A reply is one message of the agent with the prompts that precede it.
type reply struct {
	prompts []string      // messages of the user before this reply
	text    string        // text of the message; may be empty
	model   string        // model of this step; may be empty
	calls   []domain.Call // in the order of the document
}

// An atifDocument is the JSON form of an ATIF document. Unknown members are ignored.
type atifDocument struct {
	Schema string `json:"schema_version"`
	Agent  struct {
		Name  string `json:"name"`
		Model string `json:"model_name"`
	} `json:"agent"`
	Steps []stepWire `json:"steps"`
	// Subagents are the trajectories of subsessions, by trajectory_id or session_id.
	Subagents []json.RawMessage `json:"subagent_trajectories"`
}

// A stepWire is the JSON form of a step: a message of the user, the agent or the system.
type stepWire struct {
	Source  string          `json:"source"`
	Message json.RawMessage `json:"message"`
	Model   string          `json:"model_name"`
	Calls   []toolCallWire  `json:"tool_calls"`
	// Observation has the results of the calls. Only the references to the trajectories
	// of subsessions are read.
	Observation struct {
		Results []resultWire `json:"results"`
	} `json:"observation"`
}

// A toolCallWire is the JSON form of a call in a step of the agent. A nil ID or Name is
// a missing member.
type toolCallWire struct {
	ID        *string         `json:"tool_call_id"`
	Name      *string         `json:"function_name"`
	Arguments json.RawMessage `json:"arguments"`
}

// schemaPattern matches the schema versions that Parse accepts.
var schemaPattern = regexp.MustCompile(`^ATIF-v1\.[0-9]+$`)

// Parse reads an ATIF 1.x document from r and returns its Script. Error texts quote
// name, the name of the document.
//
// Parse returns an ErrNotATIF for invalid JSON, another schema version, a document
// without a reply, and a step with an unknown source or an invalid message. It also
// returns one for a call without an ID or a name, or with the ID of another call of its
// step. The text of the error lists all faulty steps with their numbers; for invalid
// JSON it has the line. An error of r is wrapped.
func Parse(name string, r io.Reader) (*Script, error) {
	return documentParser{}.read(name, r)
}

// parse parses one document. Error texts quote name.
func (p documentParser) parse(name string, data []byte) (*Script, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var d atifDocument
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("read trajectory %s: %w: %s", name, ErrNotATIF, locate(data, err))
	}
	if !schemaPattern.MatchString(d.Schema) {
		return nil, fmt.Errorf("read trajectory %s: %w: schema_version is %q, not ATIF-v1.x", name, ErrNotATIF, d.Schema)
	}
	s := &Script{model: d.Agent.Model}
	if err := s.addSteps(d.Steps); err != nil {
		return nil, fmt.Errorf("read trajectory %s: %w", name, err)
	}
	if len(s.replies) == 0 {
		return nil, fmt.Errorf("read trajectory %s: %w: no step has the source agent", name, ErrNotATIF)
	}
	if err := p.addSubsessions(s, name, d); err != nil {
		return nil, err
	}
	return s, nil
}

// locate returns the text of an error of encoding/json, worded for the author of the
// document. If the error has an offset, the text begins with the line number. If a
// value has an unexpected JSON type, the text has the path of the member and the type
// of the value.
func locate(data []byte, err error) string {
	offset := int64(-1)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	} else if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = mistyped.Offset
	}
	if offset < 0 || offset > int64(len(data)) {
		return err.Error()
	}
	what := err.Error()
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what = fmt.Sprintf("%s is of the JSON type %s", cmp.Or(mistyped.Field, "the document"), mistyped.Value)
	}
	return fmt.Sprintf("line %d: %s", 1+strings.Count(string(data[:offset]), "\n"), what)
}

// addSteps adds the replies of the steps to s. It stores the prompts before a reply
// with that reply, and the prompts after the last reply as trailingPrompts. It skips
// steps of the system. It continues after an invalid step and returns the errors of all
// steps joined.
func (s *Script) addSteps(steps []stepWire) error {
	var faults []error
	var prompts []string
	for i, step := range steps {
		message, err := messageText(step.Message)
		if err != nil {
			faults = append(faults, fmt.Errorf("%w: step %d: %w", ErrNotATIF, i+1, err))
		}
		switch step.Source {
		case "user":
			prompts = append(prompts, message)
		case "agent":
			calls, err := step.domainCalls()
			if err != nil {
				faults = append(faults, fmt.Errorf("%w: step %d: %w", ErrNotATIF, i+1, err))
			}
			s.addReply(reply{prompts: prompts, text: message, model: step.Model, calls: calls})
			prompts = nil
		case "system":
		default:
			faults = append(faults, fmt.Errorf("%w: step %d: source %q is not user, agent or system", ErrNotATIF, i+1, step.Source))
		}
	}
	s.trailingPrompts = prompts
	return errors.Join(faults...)
}

// addReply appends the reply r. If r has no prompts and the previous reply has no
// calls, it merges r into that reply: it joins the texts with an empty line and takes
// the calls of r. The reason is that a session stops after a reply without calls, so it
// would never ask for r.
func (s *Script) addReply(r reply) {
	if n := len(s.replies); n > 0 && len(r.prompts) == 0 && len(s.replies[n-1].calls) == 0 {
		last := &s.replies[n-1]
		last.text = strings.TrimPrefix(last.text+"\n\n"+r.text, "\n\n")
		last.calls = r.calls
		return
	}
	s.replies = append(s.replies, r)
}

// domainCalls returns the calls of a step, in order. It leaves out a call without an ID
// or a name, and a call with the ID of an earlier call of the step. It returns one
// error for each call that it left out, joined.
func (step stepWire) domainCalls() ([]domain.Call, error) {
	var faults []error
	seen := map[string]bool{}
	calls := make([]domain.Call, 0, len(step.Calls))
	for i, c := range step.Calls {
		switch {
		case c.ID == nil || *c.ID == "":
			faults = append(faults, fmt.Errorf("call %d has no tool_call_id", i+1))
		case c.Name == nil || *c.Name == "":
			faults = append(faults, fmt.Errorf("call %d (%s) has no function_name", i+1, *c.ID))
		case seen[*c.ID]:
			faults = append(faults, fmt.Errorf("call %d has the tool_call_id %s of another call of the step", i+1, *c.ID))
		default:
			seen[*c.ID] = true
			calls = append(calls, domain.Call{ID: domain.CallID(*c.ID), Name: *c.Name, Input: c.Arguments})
		}
	}
	return calls, errors.Join(faults...)
}

// messageText returns the text of a message. A message is a string or an array of
// parts. messageText concatenates the parts of the type text and skips other parts. A
// missing message has an empty text. Any other JSON value is an error.
func messageText(message json.RawMessage) (string, error) {
	var s string
	if len(message) == 0 || json.Unmarshal(message, &s) == nil {
		return s, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(message, &parts) != nil {
		return "", errors.New("message is neither a string nor an array of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String(), nil
}

// Model returns the name of the model in the document, which may be empty. A step may
// name another model for its reply.
func (s *Script) Model() string { return s.model }

// Len returns the number of replies.
func (s *Script) Len() int { return len(s.replies) }

// Prompts returns the messages of the user before reply n, counted from 0.
// Prompts(Len()) returns the messages after the last reply. For a larger n it returns
// nil. The caller must not modify the slice.
func (s *Script) Prompts(n int) []string {
	switch {
	case n < len(s.replies):
		return s.replies[n].prompts
	case n == len(s.replies):
		return s.trailingPrompts
	}
	return nil
}

// CountReplies returns the number n of replies in a session. A Script continues the
// session with its reply n, counted from 0.
func CountReplies(c *conversation.State) int { return c.Replies }

// NextModel implements runner.ModelNamer: the model of the step that is replayed next, or
// else the model of the trajectory.
func (s *Script) NextModel(c *conversation.State, _ string) (provider, model string) {
	own, err := s.of(c)
	if err != nil {
		return "script", ""
	}
	if n := CountReplies(c); n < len(own.replies) {
		model = own.replies[n].model
	}
	return "script", cmp.Or(model, own.model)
}

// Reply implements runner.Provider. It yields the text of the next reply, if the text
// is not empty, then each call, and a FinishPart at the end. The index of the reply is
// the number of replies in turn.Conversation. Reply yields ErrExhausted if the
// trajectory has no reply of that index, and ErrNoSubsession for a subsession without a
// trajectory. If ctx has ended before the first part, Reply yields the cause.
func (s *Script) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		own, err := s.of(turn.Conversation)
		n := CountReplies(turn.Conversation)
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case err == nil && n >= len(own.replies):
			err = fmt.Errorf("replay reply %d of %d: %w", n+1, len(own.replies), ErrExhausted)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		own.replies[n].yield(yield)
	}
}

// yield passes the parts of the reply to the runner until yield returns false.
func (r reply) yield(yield func(runner.Part, error) bool) {
	if r.text != "" && !yield(runner.TextPart(r.text), nil) {
		return
	}
	for _, c := range r.calls {
		if !yield(runner.CallPart(c), nil) {
			return
		}
	}
	finish := runner.FinishPart{Reason: "stop", Model: r.model}
	if len(r.calls) > 0 {
		finish.Reason = "tool_calls"
	}
	yield(finish, nil)
}
