package transcripts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
// its subagents: Calls = the calls settled + Open.
type Report struct {
	File          string           `json:"file"`
	Session       domain.SessionID `json:"session"`        // zero where the file has none
	Records       int              `json:"records"`        // lines that are whole JSON
	Calls         int              `json:"calls"`          // told apart by reply and call ID
	Results       int              `json:"results"`        // the late and the orphan ones included
	Open          int              `json:"open"`           // calls without a result
	OrphanResults int              `json:"orphan_results"` // results without a call
	Errors        int              `json:"errors"`         // results that the format marks as errors
	RefusedLines  []RefusedLine    `json:"refused_lines"`  // never nil
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
	Session domain.SessionID // of the file; the sessions of its subagents have it as their parent
	Report  Report
	parts   []part
}

// A part is what a transcript has to say in one stream.
type part struct {
	stream events.Stream
	drafts []events.Draft
}

// Sessions returns the sessions that the transcript has events of: that of the
// file, if any of its own lines speaks, and those of its subagents, in the
// order in which they begin.
func (t *Transcript) Sessions() []domain.SessionID {
	var all []domain.SessionID
	for _, p := range t.parts {
		if s, ok := p.stream.Session(); ok {
			all = append(all, s)
		}
	}
	return all
}

// ReadClaudeCode reads a session file of Claude Code to its end. The name is
// for errors and the report. A file in which no line is a record of the format
// is an [ErrForeign]; an empty one, or one that ends within its first record,
// is a transcript of nothing. What else cannot be read is in the report.
func ReadClaudeCode(name string, r io.Reader) (*Transcript, error) {
	return read(name, newLines(r, maxLine))
}

func read(name string, source *lines) (*Transcript, error) {
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
	report  Report
	line    int
	known   bool              // a record of the format was met
	foreign string            // why the first line that is no such record is none
	source  string            // the first session ID
	start   digest            // of the first record, which names a session that has no ID
	at      time.Time         // the last time
	records map[digest]digest // of uuids, and the messages that came with them
	copies  map[digest]int    // of lines without a uuid
	roots   map[text]string   // the chain of each record of a subagent
	chains  map[string]*chain
	order   []*chain
	calls   map[domain.CallID][]*call
	early   map[domain.CallID][]*result // came before any call of that ID
}

func newFile(name string) *file {
	return &file{
		report:  Report{File: name, RefusedLines: []RefusedLine{}},
		at:      time.Unix(0, 0).UTC(),
		records: map[digest]digest{}, copies: map[digest]int{}, roots: map[text]string{},
		chains: map[string]*chain{}, calls: map[domain.CallID][]*call{}, early: map[domain.CallID][]*result{},
	}
}

// formatTypes are types of records that tell the format from others.
var formatTypes = map[text]bool{
	"user": true, "assistant": true, "system": true, "summary": true, "attachment": true, "progress": true,
	"queue-operation": true, "permission-mode": true, "file-history-snapshot": true, "last-prompt": true,
	"ai-title": true, "custom-title": true, "worktree-state": true, "agent-name": true, "mode": true,
}

func (f *file) refuse(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if f.foreign == "" {
		f.foreign = fmt.Sprintf("line %d: %s", f.line, reason)
	}
	f.report.RefusedLines = append(f.report.RefusedLines, RefusedLine{f.line, reason})
}

// take reads one line.
func (f *file) take(l line, limit int) {
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
	if f.known = f.known || formatTypes[r.Type]; !f.known && f.foreign == "" {
		f.foreign = fmt.Sprintf("line %d: record of type %q", f.line, r.Type)
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

// admit takes what every record has and reads what it says, unless it came
// before.
func (f *file) admit(r record, document []byte) {
	if f.start == (digest{}) {
		f.start = sum(string(document))
	}
	if f.source == "" {
		f.source = string(r.Session)
	}
	if at, ok := r.time(); ok {
		f.at = at
	}
	s := saying{record: r, at: f.at, chain: f.chainOf(r)}
	var again bool
	if s.key, again = f.keyOf(r, document); again {
		return
	}
	switch r.Type {
	case "user":
		f.person(s)
	case "assistant":
		f.reply(s)
	case "attachment":
		f.queued(s)
	case "progress":
		f.progress(s)
	}
}

// keyOf returns what names a record within its file for ever, and whether it
// came before. A record without a uuid is named by its bytes, and comes again
// only if it has a time.
func (f *file) keyOf(r record, document []byte) (key string, again bool) {
	if r.UUID == "" {
		whole := sum(string(document))
		f.copies[whole]++
		return fmt.Sprintf("%x/%d", whole, f.copies[whole]), r.Timestamp != "" && f.copies[whole] > 1
	}
	id, said := sum(string(r.UUID)), sum(string(r.Type), string(r.Message))
	before, known := f.records[id]
	switch {
	case !known:
		f.records[id] = said
		return string(r.UUID), false
	case before == said:
		return "", true
	}
	whole := sum(string(document))
	f.copies[whole]++
	return fmt.Sprintf("%s/%x", r.UUID, whole), f.copies[whole] > 1
}

// chainOf returns the key of the chain that a record belongs to: empty for the
// session of the file, else the name of a subagent, or where there is none the
// uuid of the first record of it.
func (f *file) chainOf(r record) string {
	if !r.Sidechain {
		return ""
	}
	key := string(r.Agent)
	if key == "" {
		key = f.roots[r.Parent]
	}
	if key == "" {
		key = string(r.UUID)
	}
	if key == "" {
		key = "sidechain"
	}
	if r.UUID != "" && r.Agent == "" {
		if _, known := f.roots[r.UUID]; !known {
			f.roots[r.UUID] = key
		}
	}
	return key
}

// transcript ends the reading.
func (f *file) transcript() (*Transcript, error) {
	if !f.known && f.unusable() {
		return nil, fmt.Errorf("read %s: %w: %s; expected JSON lines with records such as "+
			`{"type":"user","sessionId":…,"message":{…}}`, f.report.File, ErrForeign, f.foreign)
	}
	t := &Transcript{Report: f.report}
	for _, c := range f.order {
		t.parts = append(t.parts, c.parts(f)...)
	}
	switch main := f.chains[""]; {
	case main != nil:
		t.Session = main.session
	case len(f.order) > 0:
		t.Session = f.order[0].session
	case f.known:
		t.Session = f.sessionID("")
	}
	t.Report.Session = t.Session
	return t, nil
}

// unusable reports whether the lines of a file without any record of the
// format are more than the torn beginning of one.
func (f *file) unusable() bool {
	refused := f.report.RefusedLines
	return f.report.Records > 0 || len(refused) > 1 || len(refused) == 1 && !strings.HasPrefix(refused[0].Reason, "torn")
}

// sessionID returns the ID of the session that a chain is, if it begins here.
func (f *file) sessionID(chain string) domain.SessionID {
	return derive[domain.SessionID](domain.IDFromBytes, f.at, claudeCode, f.sourceName(), chain, "session")
}

// sourceName returns what the format calls the session.
func (f *file) sourceName() string {
	if f.source == "" {
		return fmt.Sprintf("sha256:%x", f.start)
	}
	return f.source
}
