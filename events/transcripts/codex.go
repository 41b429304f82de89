package transcripts

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// ReadCodex reads a session file of Codex (rollout-*.jsonl) to its end. The errors and
// the report contain the name. A file without a record of the format is an
// [ErrForeign]. Other faults of the file are in the report.
//
// The records between a call and its result, or between two prompts, form one reply. A
// history that a fork or a sub-agent repeats from another session is ignored. A call
// that the file shows as an event only, and not as an item, is recorded if its session
// had no call before.
func ReadCodex(name string, r io.Reader) (*Transcript, error) {
	f := newSessionFile(name, codex)
	c := &codexReader{f: f, ended: map[domain.CallID]codexEnd{}}
	return readLines(f, newLineScanner(r, maxLine), c.readLine)
}

// A codexReader is the state of reading a file of Codex: the current session and its
// open reply.
type codexReader struct {
	f *sessionFile
	// key is the current session; meta is the record that began it.
	key  sessionKey
	meta codexMeta
	// replay reports that records repeat the history of another session. mayReplay
	// reports that no record followed the session_meta. last is the time of the record
	// before, and context the last turn_context of the replay.
	replay, mayReplay bool
	last              time.Time
	context           *codexPayload
	// replyKey names the open reply; empty: the next record of the model opens one.
	// lastReply is the reply before.
	replyKey  string
	lastReply *modelReply
	// model is the model of the turn. total are the tokens of the session so far, and
	// pending the tokens of a request whose reply was not read yet.
	model   string
	total   codexTokens
	pending events.Tokens
	// items and shown count the prompts that were read as an item, and as an event,
	// and have no counterpart yet.
	items, shown int
	// hasItems reports that the session has a call that is an item.
	hasItems bool
	// ended has what events say about the end of the calls without a result yet.
	ended map[domain.CallID]codexEnd
	// compacted reports that the record before was a compaction.
	compacted bool
}

// A codexEnd is what an event says about the end of a call.
type codexEnd struct {
	failed bool
	detail string
}

// readLine reads one record.
func (c *codexReader) readLine(r codexRecord, document []byte) {
	f := c.f
	p, kind := codexPayload{}, string(r.Type)
	switch {
	case firstByte(r.Payload) == '{':
		decodeLenient(r.Payload, &p)
	case r.RecordType != "":
		f.recognized = true
		f.countIgnored("record/" + string(r.RecordType))
		return
	case kind == "" && r.ID != "" && r.Timestamp != "":
		// The oldest files have bare items, and begin with a bare description.
		kind = "session_meta"
		r.Payload = document
	case slices.Contains(codexItems, kind):
		kind = "response_item"
		decodeLenient(document, &p)
	case kind == "":
		f.refuse("record has no type")
		return
	}
	if slices.Contains(codexTypes, kind) {
		f.recognized = true
	} else if !f.recognized {
		if f.foreign == "" {
			f.foreign = fmt.Sprintf("line %d: record of type %q", f.line, truncate(kind, maxKind))
		}
		f.countIgnored(kind)
		return
	}
	if f.firstDigest == (contentDigest{}) {
		f.firstDigest = sumParts(document)
	}
	stamp := fileRecord{Timestamp: r.Timestamp}
	if at, ok := stamp.timestamp(); ok {
		f.at = at
	}
	if kind == "session_meta" {
		c.readMeta(r.Payload)
		return
	}
	if c.isReplayed(kind, p) {
		f.countIgnored("history of another session")
		return
	}
	key, again := f.recordKey(&stamp, document)
	if again {
		f.countIgnored("repeated record")
		return
	}
	s := parsedRecord{key: key, time: f.at, session: c.key}
	switch kind {
	case "response_item":
		c.readItem(s, p)
	case "event_msg":
		c.readEvent(s, p)
	case "turn_context":
		c.endReply()
		c.readContext(s, p)
	case "compacted":
		c.endReply()
		c.readCompacted(s, p)
	default:
		f.countIgnored(kind)
	}
	c.compacted = kind == "compacted"
}

// readMeta reads the description of a session. It begins a session, unless it repeats
// the current one, as a resumed session does, or begins a repeated history.
func (c *codexReader) readMeta(document json.RawMessage) {
	f := c.f
	var m codexMeta
	decodeLenient(document, &m)
	id := truncate(string(m.ID), maxName)
	switch {
	case id == "":
		f.refuse("session_meta has no id")
		return
	case c.replay, c.mayReplay && id != c.ownID() && (c.meta.Forked != "" || c.meta.parent() != ""):
		c.replay, c.last = true, f.at
		f.countIgnored("history of another session")
		return
	case id == c.ownID():
		f.countIgnored("repeated session_meta")
		return
	}
	ended := map[domain.CallID]codexEnd{}
	*c = codexReader{f: f, meta: m, mayReplay: true, replay: m.Forked != "", last: f.at, ended: ended}
	if c.key = (sessionKey{session: id}); m.parent() != "" {
		c.key = sessionKey{session: truncate(m.parent(), maxName), agent: id}
	}
	if f.source == "" {
		f.source = id
	}
	s := parsedRecord{time: f.at, session: c.key}
	session := f.sessionFor(s)
	if m.parent() != "" {
		session.agent = "subagent"
		if role := firstText(m.Role, m.spawn().Role, m.Nickname, m.spawn().Nickname); role != "" {
			session.agent = domain.AgentID(truncate(role, maxName))
		}
	}
	session.changeSetting(events.SettingLocation, string(m.CWD), f.at)
	session.changeSetting(events.SettingProgramVersion, string(m.Version), f.at)
	session.changeSetting(events.SettingGitBranch, string(m.Git.Branch), f.at)
	if m.Forked != "" {
		session.changeSetting(events.SettingContinues, string(m.Forked), f.at)
	}
}

// ownID returns the ID of the current session, or "" before the first one.
func (c *codexReader) ownID() string {
	if c.key.agent != "" {
		return c.key.agent
	}
	return c.key.session
}

// replayGap is the time between two records after which a repeated history has ended:
// the program writes a history at once.
const replayGap = 2 * time.Second

// isReplayed reports whether a record belongs to a repeated history. The history ends
// with the first turn that began after the session, with a message to the sub-agent,
// or with a pause.
func (c *codexReader) isReplayed(kind string, p codexPayload) bool {
	c.mayReplay = false
	if !c.replay {
		return false
	}
	own := false
	switch {
	case kind == "event_msg" && (p.Type == "task_started" || p.Type == "turn_started"):
		own = c.meta.precedes(p)
	case kind == "response_item" && p.Type == "agent_message":
		own = p.Recipient != "" && p.Recipient == c.meta.spawn().Path
	case kind == "turn_context":
		c.context = &p
	}
	if c.f.at.Sub(c.last) >= replayGap {
		own = true
	}
	c.last = c.f.at
	if own {
		c.replay = false
		// The settings of the turn may have been read before its first record.
		if c.context != nil {
			c.readContext(parsedRecord{time: c.f.at, session: c.key}, *c.context)
			c.context = nil
		}
	}
	return !own
}

// endReply ends the open reply, so that the next record of the model opens another.
func (c *codexReader) endReply() {
	c.replyKey = ""
	c.items, c.shown = min(c.items, 1), min(c.shown, 1)
}

// reply returns the open reply, and opens it if there is none.
func (c *codexReader) reply(s parsedRecord) *modelReply {
	if c.replyKey == "" {
		c.replyKey = s.key
	}
	c.items, c.shown = 0, 0
	r := c.f.sessionFor(s).reply(s, chatMessage{ID: jsonText(c.replyKey)})
	if r.model == "" {
		r.model = c.model
	}
	r.tokens, c.pending = addTokens(r.tokens, c.pending), events.Tokens{}
	c.lastReply = r
	return r
}

// addTokens returns the sums of token counts.
func addTokens(a, b events.Tokens) events.Tokens {
	return events.Tokens{
		Input: a.Input + b.Input, Output: a.Output + b.Output, CacheRead: a.CacheRead + b.CacheRead, CacheWrite: a.CacheWrite + b.CacheWrite,
	}
}

// readContext reads the settings of a turn.
func (c *codexReader) readContext(s parsedRecord, p codexPayload) {
	session := c.f.sessionFor(s)
	session.changeSetting(events.SettingLocation, string(p.CWD), s.time)
	session.changeSetting(events.SettingPermissionMode, policyText(p.Approval), s.time)
	session.changeSetting(events.SettingSandbox, policyText(p.Sandbox), s.time)
	if model := truncate(string(p.Model), maxName); model != "" {
		if c.model = model; session.model == "" {
			session.model, session.modelAt = model, s.time
		}
	}
}

// policyText returns a policy as text: a string as it is, another value as JSON.
func policyText(policy json.RawMessage) string {
	var text jsonText
	switch firstByte(policy) {
	case 0, 'n':
		return ""
	case '"':
		decodeLenient(policy, &text)
		return string(text)
	}
	return string(policy)
}

// readCompacted records that the program replaced the history by a shorter one. The
// record repeats that history, which is not imported again.
func (c *codexReader) readCompacted(s parsedRecord, p codexPayload) {
	session := c.f.sessionFor(s)
	session.addFact(s.time, events.ContextCompacted{}, "compacted", s.key)
	if text := string(p.Message); strings.TrimSpace(text) != "" {
		c.f.addContext(s, "", events.ContextSummary, text)
	}
}

// readItem reads an item of the conversation.
func (c *codexReader) readItem(s parsedRecord, p codexPayload) {
	f := c.f
	if p.Type == "" && p.Role != "" {
		p.Type = "message"
	}
	switch p.Type {
	case "message":
		c.readMessage(s, p)
	case "reasoning":
		text := strings.TrimSpace(contentText(p.Summary) + "\n" + contentText(p.Content))
		r := c.reply(s)
		if text == "" {
			f.countIgnored("reasoning without a text")
		}
		f.addText(r, &r.thoughts, text, "thinking")
	case "agent_message":
		f.addContext(s, "", events.ContextNotification, contentText(p.Content))
	case "function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "web_search_call", "image_generation_call":
		c.readCall(s, p)
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output", "mcp_tool_call_output":
		c.endReply()
		c.readOutput(s, p)
	default:
		f.countIgnored("item/" + string(p.Type))
	}
}

// readMessage reads a message of the user, the program or the model.
func (c *codexReader) readMessage(s parsedRecord, p codexPayload) {
	text := contentText(p.Content)
	switch {
	case p.Role == "assistant":
		r := c.reply(s)
		c.f.addText(r, &r.texts, text, "reply")
	case p.Role != "user":
		c.endReply()
		c.f.addContext(s, "", events.ContextProgram, text)
	case isCodexContext(text):
		c.endReply()
		c.f.addContext(s, "", events.ContextProgram, text)
	default:
		// An event repeats the prompt, before or after the item.
		if c.shown > 0 {
			c.shown--
			return
		}
		c.endReply()
		c.items++
		c.addPrompt(s, contentBlocks(p.Content))
	}
}

// addPrompt adds a prompt to the session.
func (c *codexReader) addPrompt(s parsedRecord, parts []contentBlock) {
	for i, b := range parts {
		parts[i] = b.fromURL()
	}
	c.f.addPrompt(s, parts)
}

// readEvent reads an event of the program. Most events repeat items.
func (c *codexReader) readEvent(s parsedRecord, p codexPayload) {
	f := c.f
	switch p.Type {
	case "user_message":
		if c.items > 0 {
			c.items--
			return
		}
		if isCodexContext(string(p.Message)) {
			return
		}
		c.endReply()
		c.shown++
		c.addPrompt(s, []contentBlock{{Type: "text", Text: p.Message}})
	case "agent_message":
		r := c.reply(s)
		f.addText(r, &r.texts, string(p.Message), "reply")
	case "agent_reasoning", "agent_reasoning_raw_content":
		r := c.reply(s)
		f.addText(r, &r.thoughts, string(p.Text), "thinking")
	case "token_count":
		c.readTokens(p)
	case "turn_aborted":
		c.endReply()
		reason := domain.Superseded
		if p.Reason == "interrupted" || p.Reason == "" {
			reason = domain.ByUser
		}
		f.sessionFor(s).addFact(s.time, events.SessionInterrupted{Reason: reason, Detail: truncate(string(p.Reason), maxName)}, "interrupted", s.key)
	case "error", "stream_error":
		failed := events.ProviderFailed{Detail: f.limitContext(string(p.Message), "error")}
		f.sessionFor(s).addFact(s.time, failed, "provider", s.key)
	case "context_compacted":
		if c.compacted {
			return
		}
		f.sessionFor(s).addFact(s.time, events.ContextCompacted{}, "compacted", s.key)
	case "sub_agent_activity":
		c.recordSpawn(p.EventID, p.AgentThread)
	case "collab_agent_spawn_end":
		c.recordSpawn(p.CallID, p.NewThread)
	case "exec_command_begin", "mcp_tool_call_begin", "patch_apply_begin":
		c.readBegin(s, p)
	case "exec_command_end", "mcp_tool_call_end", "patch_apply_end":
		c.readEnd(s, p)
	case "task_started", "turn_started":
		c.endReply()
		f.countIgnored("event/" + string(p.Type))
	default:
		f.countIgnored("event/" + string(p.Type))
	}
}

// recordSpawn records that a call started the session of a sub-agent.
func (c *codexReader) recordSpawn(call, thread jsonText) {
	if call == "" || thread == "" || thread == jsonText(c.ownID()) {
		c.f.countIgnored("sub-agent without a call")
		return
	}
	c.f.spawnedByCall(sessionKey{c.ownID(), truncate(string(thread), maxName)}, domain.CallID(call))
}

// readTokens adds the tokens of a request, unless the event repeats the one before. A
// version writes them after the records of the reply, or before.
func (c *codexReader) readTokens(p codexPayload) {
	if p.Info.Total == c.total {
		return
	}
	c.total = p.Info.Total
	t := p.Info.Last.tokens()
	switch {
	case c.lastReply != nil && (c.replyKey != "" || c.lastReply.tokens == events.Tokens{}):
		c.lastReply.tokens = addTokens(c.lastReply.tokens, t)
	default:
		c.pending = addTokens(c.pending, t)
	}
}

// codexItems are the types of the bare items of the oldest files.
var codexItems = []string{
	"message", "reasoning", "function_call", "function_call_output", "local_shell_call", "local_shell_call_output", "custom_tool_call",
	"custom_tool_call_output", "web_search_call",
}

// codexTypes are the types of records by which the format is recognized.
var codexTypes = []string{"session_meta", "response_item", "event_msg", "turn_context", "compacted"}

// codexContexts are the beginnings of messages that the program writes in the role of
// the user.
var codexContexts = []string{
	"<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<subagent_notification>", "<skill>",
	"<permissions instructions>", "<user_shell_command>", "<apps_instructions>", "<collaboration_mode>", "<model_switch>", "<multi_agent_mode>",
}

// isCodexContext reports whether the program wrote a message of the user.
func isCodexContext(text string) bool {
	text = strings.TrimSpace(text)
	return slices.ContainsFunc(codexContexts, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

// A codexRecord is one line.
type codexRecord struct {
	Timestamp  jsonText        `json:"timestamp"`
	Type       jsonText        `json:"type"`
	Payload    json.RawMessage `json:"payload"`
	ID         jsonText        `json:"id"`
	RecordType jsonText        `json:"record_type"`
}

// A codexMeta describes a session.
type codexMeta struct {
	ID       jsonText `json:"id"`
	Forked   jsonText `json:"forked_from_id"`
	Began    jsonText `json:"timestamp"`
	CWD      jsonText `json:"cwd"`
	Version  jsonText `json:"cli_version"`
	Parent   jsonText `json:"parent_thread_id"`
	Role     jsonText `json:"agent_role"`
	Nickname jsonText `json:"agent_nickname"`
	Git      struct {
		Branch jsonText `json:"branch"`
	} `json:"git"`
	Source json.RawMessage `json:"source"`
}

// A codexSpawn is the origin of a sub-agent.
type codexSpawn struct {
	Parent   jsonText `json:"parent_thread_id"`
	Path     jsonText `json:"agent_path"`
	Nickname jsonText `json:"agent_nickname"`
	Role     jsonText `json:"agent_role"`
}

// spawn returns the origin of a sub-agent, and zero for the session of a user.
func (m codexMeta) spawn() codexSpawn {
	var source struct {
		Sub struct {
			Spawn codexSpawn `json:"thread_spawn"`
		} `json:"subagent"`
	}
	if firstByte(m.Source) == '{' {
		decodeLenient(m.Source, &source)
	}
	return source.Sub.Spawn
}

// parent returns the ID of the session that started this one, or "".
func (m codexMeta) parent() string { return firstText(m.spawn().Parent, m.Parent) }

// firstText returns the first text that is not empty.
func firstText(all ...jsonText) string {
	for _, t := range all {
		if t != "" {
			return string(t)
		}
	}
	return ""
}

// precedes reports whether a turn began after the session. IDs of version 7 and the
// start of the turn give the time.
func (m codexMeta) precedes(p codexPayload) bool {
	session, isSession := uuidTime(string(m.ID))
	turn, isTurn := uuidTime(string(p.TurnID))
	if isSession && isTurn {
		return turn >= session
	}
	began, err := time.Parse(time.RFC3339, string(m.Began))
	started := int64(p.Started)
	if err != nil || started == 0 {
		return false
	}
	// Seconds, and in some versions milliseconds.
	if started < 1e11 {
		return started >= began.Unix()
	}
	return started >= began.UnixMilli()
}

// uuidTime returns the milliseconds since 1970 of a UUID of version 7, and whether the
// ID is one of the years 2020 to 2100.
func uuidTime(id string) (int64, bool) {
	if len(id) != 36 || id[14] != '7' {
		return 0, false
	}
	ms, err := strconv.ParseInt(id[:8]+id[9:13], 16, 64)
	return ms, err == nil && ms > 1_577_836_800_000 && ms < 4_102_444_800_000
}

// A codexPayload is an item, an event or the settings of a turn. Type decides which
// members are set.
type codexPayload struct {
	Type    jsonText        `json:"type"`
	ID      jsonText        `json:"id"`
	Role    jsonText        `json:"role"`
	Content json.RawMessage `json:"content"`
	Summary json.RawMessage `json:"summary"`
	// The members of calls and results.
	CallID    jsonText        `json:"call_id"`
	Name      jsonText        `json:"name"`
	Namespace jsonText        `json:"namespace"`
	Arguments json.RawMessage `json:"arguments"`
	Input     json.RawMessage `json:"input"`
	Action    json.RawMessage `json:"action"`
	Status    jsonText        `json:"status"`
	Output    json.RawMessage `json:"output"`
	Recipient jsonText        `json:"recipient"`
	// The members of events.
	Message     jsonText `json:"message"`
	Text        jsonText `json:"text"`
	Reason      jsonText `json:"reason"`
	TurnID      jsonText `json:"turn_id"`
	Started     jsonUint `json:"started_at"`
	EventID     jsonText `json:"event_id"`
	AgentThread jsonText `json:"agent_thread_id"`
	NewThread   jsonText `json:"new_thread_id"`
	Info        struct {
		Total codexTokens `json:"total_token_usage"`
		Last  codexTokens `json:"last_token_usage"`
	} `json:"info"`
	Command    json.RawMessage `json:"command"`
	Changes    json.RawMessage `json:"changes"`
	ExitCode   json.RawMessage `json:"exit_code"`
	Success    json.RawMessage `json:"success"`
	Aggregated jsonText        `json:"aggregated_output"`
	Stdout     jsonText        `json:"stdout"`
	Stderr     jsonText        `json:"stderr"`
	Result     json.RawMessage `json:"result"`
	Invocation struct {
		Server    jsonText        `json:"server"`
		Tool      jsonText        `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"invocation"`
	// The settings of a turn.
	CWD      jsonText        `json:"cwd"`
	Model    jsonText        `json:"model"`
	Approval json.RawMessage `json:"approval_policy"`
	Sandbox  json.RawMessage `json:"sandbox_policy"`
}

// A jsonUint is a number that is not negative, also one with a fraction.
type jsonUint int64

// UnmarshalJSON decodes every other value as zero.
func (c *jsonUint) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseFloat(string(data), 64)
	if err != nil || n < 0 || n > 1e18 {
		n = 0
	}
	*c = jsonUint(n)
	return nil
}

// codexTokens are token counts. Input includes Cached.
type codexTokens struct {
	Input  jsonCount `json:"input_tokens"`
	Cached jsonCount `json:"cached_input_tokens"`
	Write  jsonCount `json:"cache_write_input_tokens"`
	Output jsonCount `json:"output_tokens"`
}

// tokens returns the counts of an event, whose input excludes the cache.
func (t codexTokens) tokens() events.Tokens {
	return events.Tokens{Input: int64(max(0, t.Input-t.Cached)), Output: int64(t.Output), CacheRead: int64(t.Cached), CacheWrite: int64(t.Write)}
}
