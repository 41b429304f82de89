package transcripts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The errors of this package. Match them with errors.Is.
var (
	ErrForeign      = errors.New("not a session file of Claude Code")
	ErrContradicted = errors.New("file says otherwise than what is on record")
)

// claudeCode is the name of the format in the origin of a session.
const claudeCode = "claude-code"

// A Report counts the contents of a file, including its sub-agents. Calls is the
// number of settled calls plus Open.
type Report struct {
	File          string           `json:"file"`
	Session       domain.SessionID `json:"session"`        // zero where the file has none
	Records       int              `json:"records"`        // lines that are whole JSON
	Calls         int              `json:"calls"`          // identified by reply and call ID
	Results       int              `json:"results"`        // with late results and results without a call
	Open          int              `json:"open"`           // calls without a result
	OrphanResults int              `json:"orphan_results"` // results without a call
	Errors        int              `json:"errors"`         // results that the format marks as errors
	RefusedLines  []RefusedLine    `json:"refused_lines"`  // never nil; at most 10,000
	Cut           []RefusedLine    `json:"cut"`            // texts cut to a limit; never nil; at most 10,000
	Ignored       map[string]int   `json:"ignored"`        // records that are not imported, by kind; never nil
	Added         int              `json:"added"`          // events that Import added
}

// A RefusedLine is a line, counted from 1, of which a part was not imported, and the
// reason.
type RefusedLine struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// A Transcript is the contents of a session file as events, before they are appended
// to a ledger.
type Transcript struct {
	Session domain.SessionID // the last session that the file begins; Import replaces it with the ID on record
	Report  Report
	file    *sessionFile
}

// Sessions returns the sessions of the transcript, including sub-agents, in the order
// in which they begin.
func (t *Transcript) Sessions() []domain.SessionID {
	var all []domain.SessionID
	for _, c := range t.file.order {
		all = append(all, c.session)
	}
	return all
}

// ReadClaudeCode reads a session file of Claude Code to its end. The name is for
// errors and the report. It returns an [ErrForeign] that names the similar format if
// no line is a record of the format, and an empty transcript for a file that is empty
// or ends within its first record. Other faults of the file are in the report.
func ReadClaudeCode(name string, r io.Reader) (*Transcript, error) {
	return readLines(name, newLineScanner(r, maxLine))
}

// readLines reads every line of source.
func readLines(name string, source *lineScanner) (*Transcript, error) {
	f := newSessionFile(name)
	for {
		next, err := source.next()
		if errors.Is(err, io.EOF) {
			return f.finish()
		}
		if err != nil {
			return nil, fmt.Errorf("read %s after line %d: %w", name, f.line, err)
		}
		f.line++
		f.readLine(next, source.limit)
	}
}

// A sessionFile is the state of reading a session file.
type sessionFile struct {
	report        Report
	line          int
	recognized    bool                            // a record of the format was read
	foreign       string                          // the reason of the first line that is not of the format
	head          []byte                          // the first bytes
	source        string                          // the first session ID
	current       jsonText                        // the last session ID
	firstDigest   contentDigest                   // of the first record; names a session without an ID
	at            time.Time                       // the time of the last line that had one
	records       map[contentDigest]contentDigest // of uuids to those of their messages
	lineCounts    map[contentDigest]int           // number of equal lines without a uuid
	agentKeys     map[jsonText]sessionKey         // the session of each record of a sub-agent, by uuid
	sessions      map[sessionKey]*fileSession
	order         []*fileSession
	main          *fileSession // the last session that is not a sub-agent's
	pending       map[sessionKey][]func(*fileSession)
	pendingKinds  map[sessionKey][]string // the kinds of the records in pending
	calls         map[domain.CallID][]*modelCall
	earlyResults  map[domain.CallID][]*callResult // results before the first call of that ID
	spawners      map[sessionKey]*modelCall       // the calls that started sub-agents
	awaitedSpawns map[domain.CallID][]sessionKey  // sub-agents whose call was not read yet
}

// newSessionFile returns the state before the first line.
func newSessionFile(name string) *sessionFile {
	return &sessionFile{
		report:  Report{File: name, RefusedLines: []RefusedLine{}, Cut: []RefusedLine{}, Ignored: map[string]int{}},
		at:      time.Unix(0, 0).UTC(),
		records: map[contentDigest]contentDigest{}, lineCounts: map[contentDigest]int{}, agentKeys: map[jsonText]sessionKey{},
		sessions: map[sessionKey]*fileSession{}, calls: map[domain.CallID][]*modelCall{}, earlyResults: map[domain.CallID][]*callResult{},
		pending: map[sessionKey][]func(*fileSession){}, pendingKinds: map[sessionKey][]string{},
		spawners: map[sessionKey]*modelCall{}, awaitedSpawns: map[domain.CallID][]sessionKey{},
	}
}

// refuse reports the current line as refused.
func (f *sessionFile) refuse(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if f.foreign == "" {
		f.foreign = fmt.Sprintf("line %d: %s", f.line, reason)
	}
	if len(f.report.RefusedLines) == maxReported {
		f.countIgnored("refused lines beyond those listed")
		return
	}
	f.report.RefusedLines = append(f.report.RefusedLines, RefusedLine{f.line, reason})
}

// readLine decodes one line and reads its record.
func (f *sessionFile) readLine(l textLine, limit int) {
	if room := maxHead - len(f.head); room > 0 {
		f.head = append(f.head, l.text[:min(len(l.text), room)]...)
	}
	switch {
	case l.long:
		f.refuse("longer than %d bytes", limit)
		return
	case len(l.text) == 0:
		return
	}
	document := bytes.ToValidUTF8(l.text, []byte("\uFFFD"))
	var r fileRecord
	err := json.Unmarshal(document, &r)
	if err, ok := errors.AsType[*json.SyntaxError](err); ok {
		f.refuse("%s", malformedReason(err, document, l.ended))
		return
	}
	f.report.Records++
	if document[0] != '{' {
		f.refuse("not a JSON object")
		return
	}
	if r.Type == "" {
		f.refuse("record has no type")
		return
	}
	if f.recognized = f.recognized || r.isClaudeCode(); !f.recognized && f.foreign == "" {
		f.foreign = fmt.Sprintf("line %d: record of type %q", f.line, truncate(string(r.Type), maxKind))
	}
	f.readRecord(r, document)
}

// malformedReason returns the reason for which a line is not JSON.
func malformedReason(err *json.SyntaxError, document []byte, ended bool) string {
	if !ended && document[0] == '{' {
		return fmt.Sprintf("torn: the file ends within this record: %v", err)
	}
	return fmt.Sprintf("not JSON: %v", err)
}

// isClaudeCode reports whether the fields of a record identify the format. noteMessage
// decides for user and assistant records.
func (r fileRecord) isClaudeCode() bool {
	switch r.Type {
	case "system":
		return r.Subtype != "" || r.Content != "" && r.UUID != ""
	case "progress":
		return r.Data.Type != ""
	case "attachment":
		return r.Attachment.Type != ""
	case "summary":
		return r.Title != ""
	case "file-history-snapshot":
		return true
	case "queue-operation", "permission-mode", "last-prompt", "ai-title", "custom-title", "worktree-state", "agent-name", "mode":
		return r.Session != ""
	}
	return false
}

// readRecord completes the session, time and uuid of a record and dispatches it by
// type, unless it is a repeated record.
func (f *sessionFile) readRecord(r fileRecord, document []byte) {
	if f.firstDigest == (contentDigest{}) {
		f.firstDigest = sumParts(document)
	}
	if f.source == "" {
		f.source = truncate(string(r.Session), maxName)
	}
	if r.Session = jsonText(truncate(string(r.Session), maxName)); r.Session == "" {
		r.Session = f.current
	}
	f.current = r.Session
	if r.Forked.Session != "" && r.Forked.UUID != "" {
		r.Session, r.UUID = jsonText(truncate(string(r.Forked.Session), maxName)), r.Forked.UUID
	}
	if at, ok := r.timestamp(); ok {
		f.at = at
	}
	s := parsedRecord{record: r, time: f.at, session: f.sessionKeyOf(r)}
	var again bool
	if s.key, again = f.recordKey(r, document); again {
		f.countIgnored("repeated record")
		return
	}
	f.readSettings(s)
	switch r.Type {
	case "user", "assistant":
		f.readMessage(s)
	case "attachment":
		f.readAttachment(s)
	case "progress":
		f.readProgress(s, document)
	case "system":
		f.readSystem(s)
	case "permission-mode":
		f.whenOpened(s.session, "permission-mode", func(c *fileSession) {
			c.changeSetting(events.SettingPermissionMode, string(r.Mode), laterTime(s.time, c.opened))
		})
	default:
		f.countIgnored(string(r.Type))
	}
}

// laterTime returns the later of two times.
func laterTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// readMessage reads a user or assistant record.
func (f *sessionFile) readMessage(s parsedRecord) {
	if s.record.Type == "user" {
		f.readUser(s)
	} else {
		f.readAssistant(s)
	}
}

// recordKey returns the permanent name of a record within its session, and whether the
// record is repeated. The name is the uuid or, without one, the digest of the line; an
// equal line without a uuid is a repetition only if it has a time.
func (f *sessionFile) recordKey(r fileRecord, document []byte) (key string, again bool) {
	if r.UUID == "" {
		whole := sumParts(document)
		f.lineCounts[whole]++
		return fmt.Sprintf("%x/%d", whole, f.lineCounts[whole]), r.Timestamp != "" && f.lineCounts[whole] > 1
	}
	id, said := sumParts(string(r.UUID)), r.messageDigest()
	before, known := f.records[id]
	switch {
	case !known:
		f.records[id] = said
		return string(r.UUID), false
	case before == said:
		return "", true
	}
	whole := sumParts(document)
	f.lineCounts[whole]++
	return fmt.Sprintf("%s/%x", r.UUID, whole), f.lineCounts[whole] > 1
}

// maxCompared is the length up to which messages are compared by their text.
const maxCompared = 1 << 20

// messageDigest returns a digest of the message. A string and a list of one equal text
// have the same digest.
func (r fileRecord) messageDigest() contentDigest {
	if len(r.Message) <= maxCompared {
		m, ok := r.message()
		if parts := contentBlocks(m.Content); ok && len(parts) == 1 && parts[0].Type == "text" {
			return sumParts(string(r.Type), "text", string(m.ID), string(parts[0].Text))
		}
	}
	return sumParts(json.RawMessage(r.Type), r.Message)
}

// sessionKeyOf returns the key of the session that a record belongs to: the session of
// the file, or that of the sub-agent that the record names. A record of an unnamed
// sub-agent belongs to that of its parent record, or else begins a new one.
func (f *sessionFile) sessionKeyOf(r fileRecord) sessionKey {
	key := sessionKey{session: string(r.Session)}
	if !r.Sidechain {
		return key
	}
	if root, known := f.agentKeys[r.UUID]; r.UUID != "" && known {
		return root
	}
	key.agent = truncate(string(r.Agent), maxName)
	if key.agent == "" {
		if root, known := f.agentKeys[r.Parent]; known {
			key = root
		}
	}
	if key.agent == "" {
		key.agent = truncate(string(r.UUID), maxName)
	}
	if key.agent == "" {
		key.agent = "sidechain"
	}
	if r.UUID != "" {
		f.agentKeys[r.UUID] = key
	}
	return key
}

// finish ends the reading and returns the transcript, or ErrForeign.
func (f *sessionFile) finish() (*Transcript, error) {
	if !f.recognized && f.hasForeignLines() {
		return nil, fmt.Errorf("read %s: %w: %s%s; expected JSON lines with records such as "+
			`{"type":"user","sessionId":…,"message":{"content":…}}; formats that are known: %s`,
			f.report.File, ErrForeign, f.foreign, f.similarFormat(), claudeCode)
	}
	for _, kinds := range f.pendingKinds {
		for _, kind := range kinds {
			f.countIgnored(kind)
		}
	}
	for _, c := range f.order {
		c.spawner = f.spawners[c.key]
	}
	t := &Transcript{Report: f.report, file: f}
	switch {
	case f.main != nil:
		t.Session = f.main.session
	case len(f.order) > 0:
		t.Session = f.order[0].session
	case f.recognized:
		t.Session = f.sessionID(sessionKey{session: f.source}, f.at)
	}
	t.Report.Session = t.Session
	f.records, f.lineCounts, f.agentKeys, f.pending, f.pendingKinds, f.calls, f.earlyResults, f.awaitedSpawns = nil, nil, nil, nil, nil, nil, nil, nil
	return t, nil
}

// recordSpawn records that a call started a sub-agent. The first such call counts. It
// refuses a cycle of sub-agents.
func (f *sessionFile) recordSpawn(child sessionKey, by *modelCall) {
	if f.spawners[child] != nil {
		return
	}
	depth := 0
	for above := by; above != nil; above = f.spawners[above.reply.session.key] {
		if depth++; above.reply.session.key == child || depth > maxCandidates {
			f.refuse("sub-agent %q comes of itself, or of more than %d others", child.agent, maxCandidates)
			return
		}
	}
	f.spawners[child] = by
	by.began = by.began || by.result == nil
}

// spawnedByCall records that the call of an ID started a sub-agent, or defers that
// until the call is read.
func (f *sessionFile) spawnedByCall(child sessionKey, id domain.CallID) {
	if all := f.calls[id]; len(all) > 0 {
		f.recordSpawn(child, all[len(all)-1])
	} else if !slices.Contains(f.awaitedSpawns[id], child) {
		f.awaitedSpawns[id] = append(f.awaitedSpawns[id], child)
	}
}

// maxHead is the number of bytes of a file that identify another format.
const maxHead = 16 << 10

// otherFormats are texts in the head of a file that identify other formats.
var otherFormats = []struct{ mark, format string }{
	{`"session_meta"`, "Codex"}, {`"schema_version": "ATIF`, "ATIF"}, {`"schema_version":"ATIF`, "ATIF"}, {`"response_item"`, "Codex"},
	{`"callID"`, "opencode"}, {`"sessionID"`, "opencode"}, {`"messageID"`, "opencode"}, {"SQLite format 3", "a program that keeps a database"},
	{`"record_type"`, "Codex"}, {`"parts"`, "Gemini CLI or one derived from it"}, {`"toolCallId"`, "a program that speaks ACP"},
}

// similarFormat returns the end of the error text that names the format of a foreign
// file.
func (f *sessionFile) similarFormat() string {
	for _, l := range otherFormats {
		if bytes.Contains(f.head, []byte(l.mark)) {
			return ", and the file looks like one of " + l.format
		}
	}
	return ""
}

// hasForeignLines reports whether a file without any record of the format has more
// than the torn beginning of one.
func (f *sessionFile) hasForeignLines() bool {
	refused := f.report.RefusedLines
	return f.report.Records > 0 || len(refused) > 1 || len(refused) == 1 && !strings.HasPrefix(refused[0].Reason, "torn")
}

// sessionID returns the ID of a session that begins at a time and is not on record.
func (f *sessionFile) sessionID(key sessionKey, at time.Time) domain.SessionID {
	return deriveID[domain.SessionID](domain.IDFromBytes, at, claudeCode, f.sourceName(key), key.agent, "session")
}

// sourceName returns the session ID of the format with slashes escaped, because a
// slash separates it from the name of a sub-agent.
func (f *sessionFile) sourceName(key sessionKey) string {
	if key.session == "" {
		return fmt.Sprintf("sha256:%x", f.firstDigest)
	}
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(key.session)
}

// sourceOf returns the name of a session or sub-agent in the format.
func (f *sessionFile) sourceOf(key sessionKey) string {
	if key.agent == "" {
		return f.sourceName(key)
	}
	return f.sourceName(key) + "/" + key.agent
}
