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
	file    *file
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
	return readLines(name, newLines(r, maxLine))
}

func readLines(name string, source *lines) (*Transcript, error) {
	f := newFile(name)
	for {
		next, err := source.next()
		if errors.Is(err, io.EOF) {
			return f.transcript()
		}
		if err != nil {
			return nil, fmt.Errorf("read %s after line %d: %w", name, f.line, err)
		}
		f.line++
		f.take(next, source.limit)
	}
}

// A file is a session file while it is read.
type file struct {
	report   Report
	line     int
	known    bool              // a record of the format was met
	foreign  string            // why the first line that is no such record is none
	head     []byte            // the first bytes
	source   string            // the first session ID
	current  text              // the last session ID
	start    digest            // of the first record, which names a session that has no ID
	at       time.Time         // the last time
	records  map[digest]digest // of uuids, and the messages that came with them
	copies   map[digest]int    // of lines without a uuid
	roots    map[text]chainKey // the chain of each record of a sub-agent
	chains   map[chainKey]*chain
	order    []*chain
	main     *chain // the last that is of no sub-agent
	waiting  map[chainKey][]func(*chain)
	unsaid   map[chainKey][]string // the kinds of those that wait
	calls    map[domain.CallID][]*call
	early    map[domain.CallID][]*result  // came before any call of that ID
	spawners map[chainKey]*call           // that began a sub-agent
	awaited  map[domain.CallID][]chainKey // the sub-agents that a call of that ID began, which is to come
}

func newFile(name string) *file {
	return &file{
		report:  Report{File: name, RefusedLines: []RefusedLine{}, Cut: []RefusedLine{}, Ignored: map[string]int{}},
		at:      time.Unix(0, 0).UTC(),
		records: map[digest]digest{}, copies: map[digest]int{}, roots: map[text]chainKey{},
		chains: map[chainKey]*chain{}, calls: map[domain.CallID][]*call{}, early: map[domain.CallID][]*result{},
		waiting: map[chainKey][]func(*chain){}, unsaid: map[chainKey][]string{},
		spawners: map[chainKey]*call{}, awaited: map[domain.CallID][]chainKey{},
	}
}

func (f *file) refuse(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if f.foreign == "" {
		f.foreign = fmt.Sprintf("line %d: %s", f.line, reason)
	}
	if len(f.report.RefusedLines) == mostRefused {
		f.ignore("refused lines beyond those listed")
		return
	}
	f.report.RefusedLines = append(f.report.RefusedLines, RefusedLine{f.line, reason})
}

// take reads one line.
func (f *file) take(l line, limit int) {
	if room := mostHead - len(f.head); room > 0 {
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
	var r record
	err := json.Unmarshal(document, &r)
	if err, ok := errors.AsType[*json.SyntaxError](err); ok {
		f.refuse("%s", malformed(err, document, l.ended))
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
	if f.known = f.known || r.isOfTheFormat(); !f.known && f.foreign == "" {
		f.foreign = fmt.Sprintf("line %d: record of type %q", f.line, beginning(string(r.Type), mostKind))
	}
	f.admit(r, document)
}

// malformed says why a line is not JSON.
func malformed(err *json.SyntaxError, document []byte, ended bool) string {
	if !ended && document[0] == '{' {
		return fmt.Sprintf("torn: the file ends within this record: %v", err)
	}
	return fmt.Sprintf("not JSON: %v", err)
}

// isOfTheFormat reports whether a record tells the format from others. What a
// model or a person said tells it by its content.
func (r record) isOfTheFormat() bool {
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

// admit takes what every record has and reads what it says, unless it came
// before.
func (f *file) admit(r record, document []byte) {
	if f.start == (digest{}) {
		f.start = sum(document)
	}
	if f.source == "" {
		f.source = beginning(string(r.Session), mostName)
	}
	if r.Session = text(beginning(string(r.Session), mostName)); r.Session == "" {
		r.Session = f.current
	}
	f.current = r.Session
	if r.Forked.Session != "" && r.Forked.UUID != "" {
		r.Session, r.UUID = text(beginning(string(r.Forked.Session), mostName)), r.Forked.UUID
	}
	if at, ok := r.time(); ok {
		f.at = at
	}
	s := saying{record: r, at: f.at, chain: f.chainOf(r)}
	var again bool
	if s.key, again = f.keyOf(r, document); again {
		f.ignore("repeated record")
		return
	}
	f.settings(s)
	switch r.Type {
	case "user", "assistant":
		f.speak(s)
	case "attachment":
		f.attached(s)
	case "progress":
		f.progress(s, document)
	case "system":
		f.system(s)
	case "permission-mode":
		f.around(s.chain, "permission-mode", func(c *chain) { c.set(events.SettingPermissionMode, string(r.Mode), later(s.at, c.opened)) })
	default:
		f.ignore(string(r.Type))
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// speak reads what a person or a model said.
func (f *file) speak(s saying) {
	if s.record.Type == "user" {
		f.person(s)
	} else {
		f.reply(s)
	}
}

// keyOf returns what names a record within its session for ever, and whether it
// came before. A record without a uuid is named by its bytes, and comes again
// only if it has a time.
func (f *file) keyOf(r record, document []byte) (key string, again bool) {
	if r.UUID == "" {
		whole := sum(document)
		f.copies[whole]++
		return fmt.Sprintf("%x/%d", whole, f.copies[whole]), r.Timestamp != "" && f.copies[whole] > 1
	}
	id, said := sum(string(r.UUID)), r.said()
	before, known := f.records[id]
	switch {
	case !known:
		f.records[id] = said
		return string(r.UUID), false
	case before == said:
		return "", true
	}
	whole := sum(document)
	f.copies[whole]++
	return fmt.Sprintf("%s/%x", r.UUID, whole), f.copies[whole] > 1
}

// mostCompared is how long a message may be to be compared by its text.
const mostCompared = 1 << 20

// said tells what a record says. A text and a list of one text are the same.
func (r record) said() digest {
	if len(r.Message) <= mostCompared {
		m, ok := r.spoken()
		if parts := blocks(m.Content); ok && len(parts) == 1 && parts[0].Type == "text" {
			return sum(string(r.Type), "text", string(m.ID), string(parts[0].Text))
		}
	}
	return sum(json.RawMessage(r.Type), r.Message)
}

// chainOf returns the key of the chain that a record belongs to: of its session,
// or of the sub-agent that it names, or where it names none, that of the record
// before it or else a new one.
func (f *file) chainOf(r record) chainKey {
	key := chainKey{session: string(r.Session)}
	if !r.Sidechain {
		return key
	}
	if root, known := f.roots[r.UUID]; r.UUID != "" && known {
		return root
	}
	key.agent = beginning(string(r.Agent), mostName)
	if key.agent == "" {
		if root, known := f.roots[r.Parent]; known {
			key = root
		}
	}
	if key.agent == "" {
		key.agent = beginning(string(r.UUID), mostName)
	}
	if key.agent == "" {
		key.agent = "sidechain"
	}
	if r.UUID != "" {
		f.roots[r.UUID] = key
	}
	return key
}

// transcript ends the reading.
func (f *file) transcript() (*Transcript, error) {
	if !f.known && f.unusable() {
		return nil, fmt.Errorf("read %s: %w: %s%s; expected JSON lines with records such as "+
			`{"type":"user","sessionId":…,"message":{"content":…}}; formats that are known: %s`,
			f.report.File, ErrForeign, f.foreign, f.resembles(), claudeCode)
	}
	for _, kinds := range f.unsaid {
		for _, kind := range kinds {
			f.ignore(kind)
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
	case f.known:
		t.Session = f.sessionID(chainKey{session: f.source}, f.at)
	}
	t.Report.Session = t.Session
	f.records, f.copies, f.roots, f.waiting, f.unsaid, f.calls, f.early, f.awaited = nil, nil, nil, nil, nil, nil, nil, nil
	return t, nil
}

// spawned takes it that a call began a sub-agent. The first that did stays. A
// session that would come of itself is refused.
func (f *file) spawned(child chainKey, by *call) {
	if f.spawners[child] != nil {
		return
	}
	depth := 0
	for above := by; above != nil; above = f.spawners[above.reply.chain.key] {
		if depth++; above.reply.chain.key == child || depth > mostAlike {
			f.refuse("sub-agent %q comes of itself, or of more than %d others", child.agent, mostAlike)
			return
		}
	}
	f.spawners[child] = by
	by.began = by.began || by.result == nil
}

// spawnedBy takes it that the call of an ID began a sub-agent, now or when there
// is such a call.
func (f *file) spawnedBy(child chainKey, id domain.CallID) {
	if all := f.calls[id]; len(all) > 0 {
		f.spawned(child, all[len(all)-1])
	} else if !slices.Contains(f.awaited[id], child) {
		f.awaited[id] = append(f.awaited[id], child)
	}
}

// mostHead is how much of a file is looked at to tell what it is instead.
const mostHead = 16 << 10

// lookalikes are what tells other formats by their beginnings.
var lookalikes = []struct{ mark, format string }{
	{`"session_meta"`, "Codex"}, {`"schema_version": "ATIF`, "ATIF"}, {`"schema_version":"ATIF`, "ATIF"}, {`"response_item"`, "Codex"},
	{`"callID"`, "opencode"}, {`"sessionID"`, "opencode"}, {`"messageID"`, "opencode"}, {"SQLite format 3", "a program that keeps a database"},
	{`"record_type"`, "Codex"}, {`"parts"`, "Gemini CLI or one derived from it"}, {`"toolCallId"`, "a program that speaks ACP"},
}

// resembles says what a file looks like that is not of the format.
func (f *file) resembles() string {
	for _, l := range lookalikes {
		if bytes.Contains(f.head, []byte(l.mark)) {
			return ", and the file looks like one of " + l.format
		}
	}
	return ""
}

// unusable reports whether the lines of a file without any record of the
// format are more than the torn beginning of one.
func (f *file) unusable() bool {
	refused := f.report.RefusedLines
	return f.report.Records > 0 || len(refused) > 1 || len(refused) == 1 && !strings.HasPrefix(refused[0].Reason, "torn")
}

// sessionID returns the ID of the session that a chain is, if it begins at a
// time and nothing of it is on record.
func (f *file) sessionID(key chainKey, at time.Time) domain.SessionID {
	return derive[domain.SessionID](domain.IDFromBytes, at, claudeCode, f.sourceName(key), key.agent, "session")
}

// sourceName returns what the format calls a session. A slash in it is spelled
// otherwise, as one comes before the name of a sub-agent.
func (f *file) sourceName(key chainKey) string {
	if key.session == "" {
		return fmt.Sprintf("sha256:%x", f.start)
	}
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(key.session)
}

// sourceOf returns what the format calls a session, or a sub-agent of it.
func (f *file) sourceOf(key chainKey) string {
	if key.agent == "" {
		return f.sourceName(key)
	}
	return f.sourceName(key) + "/" + key.agent
}
