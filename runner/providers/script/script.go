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

// The errors of this package. Callers match them with errors.Is.
var (
	ErrNotATIF   = errors.New("not a trajectory of ATIF 1.x")
	ErrExhausted = errors.New("the trajectory is over")
)

// A Script is a trajectory to be spoken again. [Parse] makes one.
type Script struct {
	agent           string
	model           string
	replies         []reply
	trailingPrompts []string // prompts behind the last reply
}

// A reply is one message of the agent, and the prompts that come before it.
type reply struct {
	prompts []string
	text    string
	model   string
	calls   []domain.Call
}

type atifDocument struct {
	Schema string `json:"schema_version"`
	Agent  struct {
		Name  string `json:"name"`
		Model string `json:"model_name"`
	} `json:"agent"`
	Steps []stepWire `json:"steps"`
}

type stepWire struct {
	Source  string          `json:"source"`
	Message json.RawMessage `json:"message"`
	Model   string          `json:"model_name"`
	Calls   []toolCallWire  `json:"tool_calls"`
}

type toolCallWire struct {
	ID        *string         `json:"tool_call_id"`
	Name      *string         `json:"function_name"`
	Arguments json.RawMessage `json:"arguments"`
}

// schemaPattern are the versions that are read.
var schemaPattern = regexp.MustCompile(`^ATIF-v1\.[0-9]+$`)

// Parse reads an ATIF 1.x document. The name stands in errors only. It returns
// an ErrNotATIF that says what is wrong, and where, for a document that is not
// one; for one without a reply; and for calls without an ID or a name.
func Parse(name string, r io.Reader) (*Script, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read trajectory %s: %w", name, err)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var d atifDocument
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("read trajectory %s: %w: %s", name, ErrNotATIF, locate(data, err))
	}
	if !schemaPattern.MatchString(d.Schema) {
		return nil, fmt.Errorf("read trajectory %s: %w: schema_version is %q, not ATIF-v1.x", name, ErrNotATIF, d.Schema)
	}
	s := &Script{agent: d.Agent.Name, model: d.Agent.Model}
	if err := s.addSteps(d.Steps); err != nil {
		return nil, fmt.Errorf("read trajectory %s: %w", name, err)
	}
	if len(s.replies) == 0 {
		return nil, fmt.Errorf("read trajectory %s: %w: no step has the source agent", name, ErrNotATIF)
	}
	return s, nil
}

// locate says in which line of a document an error of encoding/json is.
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

// addSteps turns steps into replies. Steps of the system are not spoken. A reply
// without calls that another follows at once is one with it.
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

func (s *Script) addReply(r reply) {
	if n := len(s.replies); n > 0 && len(r.prompts) == 0 && len(s.replies[n-1].calls) == 0 {
		last := &s.replies[n-1]
		last.text = strings.TrimPrefix(last.text+"\n\n"+r.text, "\n\n")
		last.calls = r.calls
		return
	}
	s.replies = append(s.replies, r)
}

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

// messageText returns a message: a string, or the text parts of an array. One that is
// not there is empty.
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

// Agent returns the name that the document gives its agent.
func (s *Script) Agent() string { return s.agent }

// Model returns the model that the document names; it may be empty.
func (s *Script) Model() string { return s.model }

// Len returns how many replies there are.
func (s *Script) Len() int { return len(s.replies) }

// Prompts returns the messages of the user that come before reply n, from 0:
// none where the agent goes on by itself. Before the reply behind the last come
// those that the trajectory has no reply to.
func (s *Script) Prompts(n int) []string {
	switch {
	case n < len(s.replies):
		return s.replies[n].prompts
	case n == len(s.replies):
		return s.trailingPrompts
	}
	return nil
}

// CountReplies returns how many replies a session holds: the number of the reply
// that comes next.
func CountReplies(c *conversation.State) int {
	n := 0
	for _, m := range c.Messages {
		if m.Reply != nil {
			n++
		}
	}
	return n
}

// Reply gives the next reply of the trajectory, or ErrOver.
func (s *Script) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		n := CountReplies(turn.Conversation)
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
			return
		}
		if n >= len(s.replies) {
			yield(nil, fmt.Errorf("speak reply %d of %d: %w", n+1, len(s.replies), ErrExhausted))
			return
		}
		r := s.replies[n]
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
}
