package transcripts

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// newestATIF is the newest version of ATIF that is known, by its minor number.
const newestATIF = 8

// maxHeldSteps is the size of the steps that are held for a session_id that comes
// after them.
const maxHeldSteps = 64 << 20

// ReadATIF reads a trajectory in the Agent Trajectory Interchange Format, a document of
// the versions 1.0 to 1.8, to its end. The errors and the report contain the name. A
// document without an ATIF schema_version is an [ErrForeign], and one of a version
// after 1.x an [ErrNewer]. Other faults are in the report, by the number of the step.
//
// A session is named by its session_id and the digest of its first step, because
// redacted documents of different sessions have the same session_id. A step is
// identified by its contents, so that the context that a continued document repeats is
// recorded once.
func ReadATIF(name string, r io.Reader) (*Transcript, error) {
	f := newSessionFile(name, atif)
	f.report.Interrupted = nil
	a := &atifReader{f: f, seen: map[contentDigest]int{}, spawns: map[string]*modelCall{}}
	err := newDocumentReader(f, r).read(a.readMember, []string{"steps", "subagent_trajectories"}, a.readElement)
	if a.failed != nil {
		return nil, fmt.Errorf("read %s: %w", name, a.failed)
	}
	a.release()
	return f.finishDocument(err, "step")
}

// An atifReader is the state of reading a document.
type atifReader struct {
	f *sessionFile
	// id, agent and model are members of the document. parent is the document that
	// contains this one, or "".
	id, model string
	parent    sessionKey
	agent     atifAgent
	// key is the session, which the first step begins.
	key   sessionKey
	begun bool
	// held has the steps that came before the session_id, and heldSize their size.
	held     []json.RawMessage
	heldSize int
	// seen counts equal steps.
	seen map[contentDigest]int
	// last has the calls of the last step with calls.
	last []*modelCall
	// spawns has the calls that started sub-agents, by the session_id of these.
	spawns map[string]*modelCall
	// failed is the error that ends the import.
	failed error
}

// An atifAgent is the program that ran the session.
type atifAgent struct {
	Name    jsonText `json:"name"`
	Version jsonText `json:"version"`
	Model   jsonText `json:"model_name"`
}

// readMember reads a member of the document other than its steps.
func (a *atifReader) readMember(name string, value json.RawMessage) {
	var text jsonText
	switch name {
	case "schema_version":
		decodeLenient(value, &text)
		a.readVersion(string(text))
	case "session_id":
		decodeLenient(value, &text)
		a.id = truncate(string(text), maxName)
	case "agent":
		decodeLenient(value, &a.agent)
		a.model = truncate(string(a.agent.Model), maxName)
	default:
		a.f.countIgnored(name)
	}
}

// readVersion checks the version of the document. A later minor version is read on.
func (a *atifReader) readVersion(version string) {
	rest, is := strings.CutPrefix(version, "ATIF-v")
	if !is {
		return
	}
	a.f.recognized = true
	major, minor, _ := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(major); err == nil && n > 1 {
		a.failed = fmt.Errorf("%w: %s; the newest that is known is ATIF-v1.%d", ErrNewer, truncate(version, maxKind), newestATIF)
	}
	if n, err := strconv.Atoi(minor); err == nil && n > newestATIF {
		a.f.countIgnored(fmt.Sprintf("version %s, after the known ATIF-v1.%d", truncate(version, 16), newestATIF))
	}
}

// readElement reads a step, or the document of a sub-agent.
func (a *atifReader) readElement(name string, value json.RawMessage) {
	if a.failed != nil {
		return
	}
	if name != "steps" {
		a.readNested(value)
		return
	}
	if a.id == "" && !a.begun {
		if a.heldSize += len(value); a.heldSize > maxHeldSteps {
			a.failed = fmt.Errorf("session_id comes after more than %d bytes of steps", maxHeldSteps)
			return
		}
		a.held = append(a.held, value)
		return
	}
	a.release()
	a.readStep(value)
}

// release reads the steps that waited for the session_id.
func (a *atifReader) release() {
	held := a.held
	a.held = nil
	for _, step := range held {
		a.readStep(step)
	}
}

// readNested reads the document of a sub-agent that this document contains.
func (a *atifReader) readNested(value json.RawMessage) {
	a.release()
	inner := &atifReader{f: a.f, seen: map[contentDigest]int{}, spawns: map[string]*modelCall{}, parent: a.key}
	d := newDocumentReader(a.f, strings.NewReader(string(value)))
	_ = d.read(inner.readMember, []string{"steps"}, inner.readElement)
	inner.release()
	if by := a.spawns[inner.id]; by != nil && inner.begun {
		a.f.recordSpawn(inner.key, by)
	}
}

// An atifStep is one step.
type atifStep struct {
	Source    jsonText        `json:"source"`
	Timestamp jsonText        `json:"timestamp"`
	Model     jsonText        `json:"model_name"`
	Message   json.RawMessage `json:"message"`
	Reasoning jsonText        `json:"reasoning_content"`
	Copied    jsonFlag        `json:"is_copied_context"`
	Calls     []struct {
		ID        jsonText        `json:"tool_call_id"`
		Name      jsonText        `json:"function_name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"tool_calls"`
	Observation struct {
		Results []atifResult `json:"results"`
	} `json:"observation"`
	Metrics struct {
		Prompt     jsonCount `json:"prompt_tokens"`
		Completion jsonCount `json:"completion_tokens"`
		Cached     jsonCount `json:"cached_tokens"`
	} `json:"metrics"`
}

// An atifResult is a result in a step. Without a CallID it belongs to a call of its
// step.
type atifResult struct {
	CallID  jsonText        `json:"source_call_id"`
	Content json.RawMessage `json:"content"`
	Agents  []struct {
		Session jsonText `json:"session_id"`
		Path    jsonText `json:"trajectory_path"`
	} `json:"subagent_trajectory_ref"`
	Extra struct {
		IsError  jsonFlag        `json:"is_error"`
		ExitCode json.RawMessage `json:"exit_code"`
	} `json:"extra"`
}

// readStep reads one step: a prompt, a reply with its results, or a text of the
// program.
func (a *atifReader) readStep(value json.RawMessage) {
	f := a.f
	f.line++
	f.report.Records++
	if firstByte(value) != '{' {
		f.refuse("step is not a JSON object")
		return
	}
	var step atifStep
	decodeLenient(value, &step)
	stamp := fileRecord{Timestamp: step.Timestamp}
	if at, ok := stamp.timestamp(); ok {
		f.at = at
	}
	digest := step.digest()
	a.begin(digest)
	if step.Copied {
		f.countIgnored("copied context")
		return
	}
	a.seen[digest]++
	s := parsedRecord{key: fmt.Sprintf("%x/%d", digest, a.seen[digest]), time: f.at, session: a.key}
	parts := contentBlocks(step.Message)
	switch step.Source {
	case "user":
		f.addPrompt(s, parts)
	case "agent":
		a.readAgent(s, step, parts)
	default:
		if step.Source != "system" {
			f.countIgnored("source/" + string(step.Source))
		}
		f.addContext(s, "", events.ContextProgram, plainText(parts))
	}
	a.readResults(s, step)
}

// digest returns the digest of the parts of a step that identify it. A result can be
// added to a step later.
func (s atifStep) digest() contentDigest {
	calls, err := json.Marshal(s.Calls)
	if err != nil {
		calls = nil
	}
	return sumParts([]byte(s.Source), []byte(plainText(contentBlocks(s.Message))), []byte(s.Reasoning), calls)
}

// begin begins the session with the first step.
func (a *atifReader) begin(first contentDigest) {
	if a.begun {
		return
	}
	f := a.f
	a.begun = true
	name := fmt.Sprintf("%s#%x", a.id, first[:6])
	if a.key = (sessionKey{session: name}); a.parent != (sessionKey{}) {
		a.key = sessionKey{session: a.parent.session, agent: name}
	}
	if f.source == "" {
		f.source = name
	}
	c := f.sessionFor(parsedRecord{time: f.at, session: a.key})
	if a.agent.Name != "" {
		c.agent = domain.AgentID(truncate(string(a.agent.Name), maxName))
	}
	if a.model != "" && c.model == "" {
		c.model, c.modelAt = a.model, f.at
	}
	c.changeSetting(events.SettingProgramVersion, string(a.agent.Version), f.at)
}

// readAgent reads the reply in a step.
func (a *atifReader) readAgent(s parsedRecord, step atifStep, parts []contentBlock) {
	f := a.f
	r := f.sessionFor(s).reply(s, chatMessage{ID: jsonText(s.key)})
	if r.model = truncate(string(step.Model), maxName); r.model == "" {
		r.model = a.model
	}
	m := step.Metrics
	r.tokens = events.Tokens{Input: int64(max(0, m.Prompt-m.Cached)), Output: int64(m.Completion), CacheRead: int64(m.Cached)}
	f.addText(r, &r.texts, plainText(parts), "reply")
	f.addText(r, &r.thoughts, string(step.Reasoning), "thinking")
	if len(step.Calls) > 0 {
		a.last = nil
	}
	for i, call := range step.Calls {
		b := contentBlock{ID: call.ID, Name: call.Name, Input: call.Arguments}
		if b.ID == "" {
			b.ID = jsonText(fmt.Sprintf("call %d of the step", i+1))
		}
		if firstByte(b.Input) == 0 {
			b.Input = json.RawMessage("{}")
		}
		// A program writes a call in the step of its message and in that of its result.
		known := f.callFor(r.session, domain.CallID(b.ID))
		if known != nil && known.reply.session == r.session && known.result == nil && known.reply != r &&
			known.call.Name == truncate(string(b.Name), maxName) && sameInput(known.call.Input, b.Input) {
			f.countIgnored("repeated call")
			a.last = append(a.last, known)
			continue
		}
		n := len(r.calls)
		if f.readCall(s, r, b); len(r.calls) > n {
			a.last = append(a.last, r.calls[n])
		}
	}
}

// readResults reads the results of a step. A result without an ID belongs to the next
// open call of the step or, in a step without calls, of the last step with calls. One
// without such a call is a text of the program.
func (a *atifReader) readResults(s parsedRecord, step atifStep) {
	f := a.f
	for i, r := range step.Observation.Results {
		id := domain.CallID(truncate(string(r.CallID), maxName))
		var call *modelCall
		if id != "" {
			f.report.Results++
			call = f.callFor(f.sessionFor(s), id)
		} else {
			f.report.ResultsWithoutID++
			for _, c := range a.last {
				if c.result == nil && call == nil && !a.named(step, c) {
					call, id = c, c.call.ID
				}
			}
		}
		text := contentText(r.Content)
		if len(r.Agents) > 0 {
			for _, agent := range r.Agents {
				text = strings.TrimSpace(text + "\n[sub-agent " + firstText(agent.Session, agent.Path) + "]")
			}
			if call != nil {
				call.starts = true
				for _, agent := range r.Agents {
					a.spawns[truncate(string(agent.Session), maxName)] = call
				}
			} else {
				f.report.SubagentCalls++
			}
		}
		if call == nil && id == "" {
			f.addContext(s, partSuffix(i+1, 0), events.ContextNotification, text)
			continue
		}
		result := &callResult{session: f.sessionFor(s), id: id, key: fmt.Sprintf("%s/%d", s.key, i), at: s.time}
		failed, detail := exitStatus(r.Extra.ExitCode)
		failed = failed || bool(r.Extra.IsError)
		contents := blockContents(contentBlocks(r.Content))
		if len(contents) == 0 {
			contents = domain.Contents{domain.Text(text)}
		}
		outcome := callOutcome{outcome: domain.Succeeded, ran: true}
		if failed {
			outcome = callOutcome{outcome: domain.Failed, ran: true}
		}
		f.settle(result, f.limitContents(contents, "result of call "+string(id)), failed, detail, outcome)
		f.placeResult(result, call)
	}
}

// named reports whether a result of the step names the call.
func (a *atifReader) named(step atifStep, c *modelCall) bool {
	for _, r := range step.Observation.Results {
		if domain.CallID(r.CallID) == c.call.ID {
			return true
		}
	}
	return false
}
