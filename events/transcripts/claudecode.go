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

// The errors of this package. Callers match them with errors.Is.
var (
	ErrForeign      = errors.New("not a session file of Claude Code")
	ErrContradicted = errors.New("file says otherwise than what is on record")
)

// claudeCode is the name of the format in the origin of a session.
const claudeCode = "claude-code"

// A Report says what a file held. The counts are those of the whole file, with
// its sub-agents: Calls = the calls settled + Open.
type Report struct {
	File          string           `json:"file"`
	Session       domain.SessionID `json:"session"`        // zero where the file has none
	Records       int              `json:"records"`        // lines that are whole JSON
	Calls         int              `json:"calls"`          // told apart by reply and call ID
	Results       int              `json:"results"`        // the late and the orphan ones included
	Open          int              `json:"open"`           // calls without a result
	OrphanResults int              `json:"orphan_results"` // results without a call
	Errors        int              `json:"errors"`         // results that the format marks as errors
	RefusedLines  []RefusedLine    `json:"refused_lines"`  // never nil; at most 10,000
	Cut           []RefusedLine    `json:"cut"`            // of which not all is kept, as it is too long; never nil; at most 10,000
	Ignored       map[string]int   `json:"ignored"`        // what is not put on record, by its kind; never nil
	Added         int              `json:"added"`          // events that Import added
}

// A RefusedLine is a line, counted from 1, of which something was not read,
// and why.
type RefusedLine struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// A Transcript is what a session file says, as events that are not yet in a
// ledger.
type Transcript struct {
	Session domain.SessionID // of the file: the last that it begins; on record under this ID after an import
	Report  Report
	file    *sessionFile
}

// Sessions returns the sessions that the transcript has events of, and those of
// sub-agents among them, in the order in which they begin.
func (t *Transcript) Sessions() []domain.SessionID {
	var all []domain.SessionID
	for _, c := range t.file.order {
		all = append(all, c.session)
	}
	return all
}

// ReadClaudeCode reads a session file of Claude Code to its end. The name is
// for errors and the report. A file in which no line is a record of the format
// is an [ErrForeign] that says what it is instead, where that is known; an empty
// one, or one that ends within its first record, is a transcript of nothing.
// What else cannot be read is in the report.
func ReadClaudeCode(name string, r io.Reader) (*Transcript, error) {
	return readLines(name, newLineScanner(r, maxLine))
}

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

// A sessionFile is a session file while it is read.
type sessionFile struct {
	report        Report
	line          int
	recognized    bool                            // a record of the format was met
	foreign       string                          // why the first line that is no such record is none
	head          []byte                          // the first bytes
	source        string                          // the first session ID
	current       jsonText                        // the last session ID
	firstDigest   contentDigest                   // of the first record, which names a session that has no ID
	at            time.Time                       // the last time
	records       map[contentDigest]contentDigest // of uuids, and the messages that came with them
	lineCounts    map[contentDigest]int           // of lines without a uuid
	agentKeys     map[jsonText]sessionKey         // the chain of each record of a sub-agent
	sessions      map[sessionKey]*fileSession
	order         []*fileSession
	main          *fileSession // the last that is of no sub-agent
	pending       map[sessionKey][]func(*fileSession)
	pendingKinds  map[sessionKey][]string // the kinds of those that wait
	calls         map[domain.CallID][]*modelCall
	earlyResults  map[domain.CallID][]*callResult // came before any call of that ID
	spawners      map[sessionKey]*modelCall       // that began a sub-agent
	awaitedSpawns map[domain.CallID][]sessionKey  // the sub-agents that a call of that ID began, which is to come
}

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

// readLine reads one line.
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

// malformedReason says why a line is not JSON.
func malformedReason(err *json.SyntaxError, document []byte, ended bool) string {
	if !ended && document[0] == '{' {
		return fmt.Sprintf("torn: the file ends within this record: %v", err)
	}
	return fmt.Sprintf("not JSON: %v", err)
}

// isClaudeCode reports whether a record tells the format from others. What a
// model or a person said tells it by its content.
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

// readRecord takes what every record has and reads what it says, unless it came
// before.
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

// readMessage reads what a person or a model said.
func (f *sessionFile) readMessage(s parsedRecord) {
	if s.record.Type == "user" {
		f.readUser(s)
	} else {
		f.readAssistant(s)
	}
}

// recordKey returns what names a record within its session for ever, and whether it
// came before. A record without a uuid is named by its bytes, and comes again
// only if it has a time.
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

// maxCompared is how long a message may be to be compared by its text.
const maxCompared = 1 << 20

// messageDigest tells what a record says. A text and a list of one text are the same.
func (r fileRecord) messageDigest() contentDigest {
	if len(r.Message) <= maxCompared {
		m, ok := r.message()
		if parts := contentBlocks(m.Content); ok && len(parts) == 1 && parts[0].Type == "text" {
			return sumParts(string(r.Type), "text", string(m.ID), string(parts[0].Text))
		}
	}
	return sumParts(json.RawMessage(r.Type), r.Message)
}

// sessionKeyOf returns the key of the chain that a record belongs to: of its session,
// or of the sub-agent that it names, or where it names none, that of the record
// before it or else a new one.
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

// finish ends the reading.
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

// recordSpawn takes it that a call began a sub-agent. The first that did stays. A
// session that would come of itself is refused.
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

// spawnedByCall takes it that the call of an ID began a sub-agent, now or when there
// is such a call.
func (f *sessionFile) spawnedByCall(child sessionKey, id domain.CallID) {
	if all := f.calls[id]; len(all) > 0 {
		f.recordSpawn(child, all[len(all)-1])
	} else if !slices.Contains(f.awaitedSpawns[id], child) {
		f.awaitedSpawns[id] = append(f.awaitedSpawns[id], child)
	}
}

// maxHead is how much of a file is looked at to tell what it is instead.
const maxHead = 16 << 10

// otherFormats are what tells other formats by their beginnings.
var otherFormats = []struct{ mark, format string }{
	{`"session_meta"`, "Codex"}, {`"schema_version": "ATIF`, "ATIF"}, {`"schema_version":"ATIF`, "ATIF"}, {`"response_item"`, "Codex"},
	{`"callID"`, "opencode"}, {`"sessionID"`, "opencode"}, {`"messageID"`, "opencode"}, {"SQLite format 3", "a program that keeps a database"},
	{`"record_type"`, "Codex"}, {`"parts"`, "Gemini CLI or one derived from it"}, {`"toolCallId"`, "a program that speaks ACP"},
}

// similarFormat says what a file looks like that is not of the format.
func (f *sessionFile) similarFormat() string {
	for _, l := range otherFormats {
		if bytes.Contains(f.head, []byte(l.mark)) {
			return ", and the file looks like one of " + l.format
		}
	}
	return ""
}

// hasForeignLines reports whether the lines of a file without any record of the
// format are more than the torn beginning of one.
func (f *sessionFile) hasForeignLines() bool {
	refused := f.report.RefusedLines
	return f.report.Records > 0 || len(refused) > 1 || len(refused) == 1 && !strings.HasPrefix(refused[0].Reason, "torn")
}

// sessionID returns the ID of the session that a chain is, if it begins at a
// time and nothing of it is on record.
func (f *sessionFile) sessionID(key sessionKey, at time.Time) domain.SessionID {
	return deriveID[domain.SessionID](domain.IDFromBytes, at, claudeCode, f.sourceName(key), key.agent, "session")
}

// sourceName returns what the format calls a session. A slash in it is spelled
// otherwise, as one comes before the name of a sub-agent.
func (f *sessionFile) sourceName(key sessionKey) string {
	if key.session == "" {
		return fmt.Sprintf("sha256:%x", f.firstDigest)
	}
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(key.session)
}

// sourceOf returns what the format calls a session, or a sub-agent of it.
func (f *sessionFile) sourceOf(key sessionKey) string {
	if key.agent == "" {
		return f.sourceName(key)
	}
	return f.sourceName(key) + "/" + key.agent
}
