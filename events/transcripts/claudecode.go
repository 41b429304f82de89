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
	// ErrForeign: the file has contents, and no record of it is of the format.
	ErrForeign = errors.New("not a session file of this format")
	// ErrContradicted: a record of the file has another content than the event that
	// an earlier import recorded for it.
	ErrContradicted = errors.New("file contradicts the events on record")
)

// The formats, by the name that the origin of an imported session has.
const (
	claudeCode = "claude-code"
	codex      = "codex"
	opencode   = "opencode"
	atif       = "atif"
)

// Formats returns the names of the formats that this package reads.
func Formats() []string { return []string{claudeCode, codex, opencode, atif} }

// A Report counts the contents of a file, including its sub-agents. Calls is the
// number of settled calls plus Open. Its JSON is an output of the command.
type Report struct {
	File string `json:"file"`
	// Session is zero if the file has no record of the format.
	Session domain.SessionID `json:"session"`
	// Records counts the lines that are whole JSON values, or in a document or a
	// database the messages or steps.
	Records int `json:"records"`
	// Sessions counts the sessions that the file begins or continues, and Prompts the
	// prompts of a person in them. A prompt that started a sub-agent does not count.
	// Prompts is nil if the file cannot show them.
	Sessions int  `json:"sessions"`
	Prompts  *int `json:"prompts"`
	// Calls counts the distinct calls, by reply and call ID.
	Calls int `json:"calls"`
	// Results counts all results, with late results and results without a call.
	Results int `json:"results"`
	// Open counts the calls without a result, and OrphanResults the results without a
	// call.
	Open          int `json:"open"`
	OrphanResults int `json:"orphan_results"`
	// Errors counts the results that the format marks as errors, and ErrorsText the
	// other results whose text gives an exit status that is not 0.
	Errors     int `json:"errors"`
	ErrorsText int `json:"errors_text"`
	// ResultsWithoutID counts the results that name no call. Results does not count
	// them, and they belong to the calls of their step, in order.
	ResultsWithoutID int `json:"results_without_id"`
	// Interrupted counts the turns that were broken off; nil: the file cannot show
	// them. SubagentCalls counts the calls that start another agent.
	Interrupted   *int `json:"interrupted"`
	SubagentCalls int  `json:"subagent_calls"`
	// RefusedLines are the lines of which a part was not imported, and Cut the texts
	// that were cut to a limit. Neither is nil or longer than 10,000.
	RefusedLines []RefusedLine `json:"refused_lines"`
	Cut          []RefusedLine `json:"cut"`
	// Ignored counts the records that are not imported, by kind. It is not nil.
	Ignored map[string]int `json:"ignored"`
	// Added counts the events that Import appended. Reading leaves it at 0.
	Added int `json:"added"`
}

// A RefusedLine is the number of a line, from 1, and the reason for which a part of
// the line was not imported.
type RefusedLine struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// A Transcript is the contents of a session file as events, before they are appended
// to a ledger. It holds their texts in memory. It belongs to one goroutine.
type Transcript struct {
	// Session is the last session that the file begins. Import replaces it with the
	// ID on record.
	Session domain.SessionID
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

// ReadClaudeCode reads a session file of Claude Code to its end. The errors and the
// report contain the name. If no line is a record of the format, the error is an
// [ErrForeign], which names the format that the file resembles. A file that is empty
// or ends within its first record gives an empty transcript. Other faults of the file
// are in the report.
func ReadClaudeCode(name string, r io.Reader) (*Transcript, error) {
	f := newSessionFile(name, claudeCode)
	return readLines(f, newLineScanner(r, maxLine), f.readClaudeLine)
}

// readLines decodes every JSON object of source into an R, passes it to the function
// record, and returns the transcript. An error of the reader names the last line that
// was read.
func readLines[R any](f *sessionFile, source *lineScanner, record func(r R, document []byte)) (*Transcript, error) {
	for {
		next, err := source.next()
		if errors.Is(err, io.EOF) {
			return f.finish()
		}
		if err != nil {
			return nil, fmt.Errorf("read %s after line %d: %w", f.report.File, f.line, err)
		}
		f.line++
		var r R
		if document, ok := f.decodeLine(next, source.limit, &r); ok {
			record(r, document)
		}
	}
}

// A sessionFile is the state of reading a session file, line by line. Records refer
// to earlier and to later lines: a result can come before its call, a sub-agent
// before the call that started it, and a setting before the first event of its
// session. References to a later line wait in pending, earlyResults and awaitedSpawns
// until that line is read. Replies grow until the end of the file. Therefore drafts
// makes the events from the steps of each session after the whole file was read.
type sessionFile struct {
	// format is the name of the format, one of Formats.
	format string
	report Report
	// line is the number of the current line, or of the current message or step of a
	// document.
	line int
	// recognized reports that a record of the format was read.
	recognized bool
	// foreign describes the first line that is not of the format, for ErrForeign.
	foreign string
	// head is the beginning of the file, at most maxHead bytes.
	head []byte
	// source is the first session ID of the file, and current the last one so far. A
	// record without a session ID belongs to current.
	source  string
	current jsonText
	// firstDigest is the digest of the first record. It names a session without an
	// ID.
	firstDigest contentDigest
	// at is the time of the last line that had one.
	at time.Time
	// records has, by the digest of each uuid, the digest of the message of the record,
	// so that recordKey recognizes a repeated record. lineCounts counts equal lines,
	// for records that a uuid does not identify.
	records    map[contentDigest]contentDigest
	lineCounts map[contentDigest]int
	// agentKeys has, by uuid, the session of each record of a sub-agent. A later record
	// may name only that uuid, as its parent.
	agentKeys map[jsonText]sessionKey
	// sessions has the sessions that have begun, by key. order has the same sessions in
	// the order in which they began.
	sessions map[sessionKey]*fileSession
	order    []*fileSession
	// named has the sessions by the name that the importer gives them, see
	// sessionName.
	named map[string]*fileSession
	// main is the last session that is not a sub-agent's.
	main *fileSession
	// pending has the changes to make when their session begins. pendingKinds has the
	// kinds of the records of these changes, which count as ignored if the session
	// never begins.
	pending      map[sessionKey][]func(*fileSession)
	pendingKinds map[sessionKey][]string
	// calls has all calls by ID, in the order of the file, as an ID can occur in
	// several replies.
	calls map[domain.CallID][]*modelCall
	// earlyResults has the results that came before the first call of their ID.
	earlyResults map[domain.CallID][]*callResult
	// spawners has the call that started each sub-agent.
	spawners map[sessionKey]*modelCall
	// awaitedSpawns has the sub-agents whose call was not read yet.
	awaitedSpawns map[domain.CallID][]sessionKey
}

// newSessionFile returns the state before the first line.
func newSessionFile(name, format string) *sessionFile {
	return &sessionFile{
		format: format, named: map[string]*fileSession{},
		report:  Report{File: name, Prompts: new(int), Interrupted: new(int), RefusedLines: []RefusedLine{}, Cut: []RefusedLine{}, Ignored: map[string]int{}},
		at:      time.Unix(0, 0).UTC(),
		records: map[contentDigest]contentDigest{}, lineCounts: map[contentDigest]int{}, agentKeys: map[jsonText]sessionKey{},
		sessions: map[sessionKey]*fileSession{}, calls: map[domain.CallID][]*modelCall{}, earlyResults: map[domain.CallID][]*callResult{},
		pending: map[sessionKey][]func(*fileSession){}, pendingKinds: map[sessionKey][]string{},
		spawners: map[sessionKey]*modelCall{}, awaitedSpawns: map[domain.CallID][]sessionKey{},
	}
}

// refuse adds the current line to the refused lines of the report, with a reason. If
// the report has maxReported such lines, refuse only counts the line.
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

// decodeLine decodes a line, with invalid UTF-8 replaced, and returns it. It refuses a
// line that is too long or is not a JSON object; such a line changes only the report.
// ok is false for these and for an empty line.
func (f *sessionFile) decodeLine(l textLine, limit int, into any) (document []byte, ok bool) {
	f.noteHead(l.text)
	switch {
	case l.long:
		f.refuse("longer than %d bytes", limit)
		return nil, false
	case len(l.text) == 0:
		return nil, false
	}
	document = bytes.ToValidUTF8(l.text, []byte("\uFFFD"))
	if err, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(document, into)); ok {
		f.refuse("%s", malformedReason(err, document, l.ended))
		return nil, false
	}
	f.report.Records++
	if document[0] != '{' {
		f.refuse("not a JSON object")
		return nil, false
	}
	return document, true
}

// noteHead adds bytes to the beginning of the file that similarFormat searches.
func (f *sessionFile) noteHead(text []byte) {
	if room := maxHead - len(f.head); room > 0 {
		f.head = append(f.head, text[:min(len(text), room)]...)
	}
}

// readClaudeLine reads a record of Claude Code. It refuses a record without a type.
func (f *sessionFile) readClaudeLine(r fileRecord, document []byte) {
	if r.Type == "" {
		f.refuse("record has no type")
		return
	}
	if f.recognized = f.recognized || r.isClaudeCode(); !f.recognized && f.foreign == "" {
		f.foreign = fmt.Sprintf("line %d: record of type %q", f.line, truncate(string(r.Type), maxKind))
	}
	f.readRecord(r, document)
}

// malformedReason returns the reason for which a line is not JSON. A last line that
// begins as an object is torn: the program that writes the file has not finished it.
func malformedReason(err *json.SyntaxError, document []byte, ended bool) string {
	if !ended && document[0] == '{' {
		return fmt.Sprintf("torn: the file ends within this record: %v", err)
	}
	return fmt.Sprintf("not JSON: %v", err)
}

// isClaudeCode reports whether the fields of a record identify the format. The type
// alone does not, because other formats use the same types. For user and assistant
// records, noteMessage decides instead.
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

// readRecord completes the session, time and uuid of a record from the lines before
// it, and passes the record to the function of its type. It ignores a repeated
// record. A record that a fork copied takes the session and uuid of the original.
func (f *sessionFile) readRecord(r fileRecord, document []byte) {
	if f.firstDigest == (contentDigest{}) {
		f.firstDigest = sumParts(document)
	}
	// The file can have several sessions. A record without a session ID belongs to
	// the session of the record before it.
	if f.source == "" {
		f.source = truncate(string(r.Session), maxName)
	}
	if r.Session = jsonText(truncate(string(r.Session), maxName)); r.Session == "" {
		r.Session = f.current
	}
	f.current = r.Session
	// A copied record becomes the record that was copied, so that the files of both
	// sessions record it once.
	if r.Forked.Session != "" && r.Forked.UUID != "" {
		r.Session, r.UUID = jsonText(truncate(string(r.Forked.Session), maxName)), r.Forked.UUID
	}
	// A record without a time happened no earlier than the one before it.
	if at, ok := r.timestamp(); ok {
		f.at = at
	}
	session := f.sessionKeyOf(r)
	key, again := f.recordKey(&r, document)
	if again {
		f.countIgnored("repeated record")
		return
	}
	s := parsedRecord{record: r, key: key, time: f.at, session: session}
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

// recordKey returns the key of a record, its permanent name within its session, from
// which the IDs of its events derive. The result again reports that the record
// repeats an earlier one. The cases are:
//
//   - A record with a new uuid has the uuid as its name.
//   - A record with the uuid and message of an earlier record is a repetition.
//   - A record with the uuid of an earlier record and another message has the uuid
//     and the digest of its line as its name. It is a repetition if an equal line
//     came before.
//   - A record without a uuid has the digest of its line and the number of equal
//     lines so far as its name. It is a repetition if an equal line came before and
//     it has a time: two equal records without a time can be separate facts.
func (f *sessionFile) recordKey(r *fileRecord, document []byte) (key string, again bool) {
	if r.UUID == "" {
		whole := sumParts(document)
		f.lineCounts[whole]++
		return fmt.Sprintf("%x/%d", whole, f.lineCounts[whole]), r.Timestamp != "" && f.lineCounts[whole] > 1
	}
	// The format can repeat a record with the same uuid and message, at another time
	// or place.
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

// maxCompared is the length in bytes up to which messages are compared by their text.
// A longer message is compared by its JSON.
const maxCompared = 1 << 20

// messageDigest returns a digest of the message of a record. The format writes a text
// as a string or as a list of one block; both have the same digest.
func (r *fileRecord) messageDigest() contentDigest {
	if len(r.Message) <= maxCompared {
		m, parts, ok := r.messageParts()
		if ok && len(parts) == 1 && parts[0].Type == "text" {
			return sumParts(string(r.Type), "text", string(m.ID), string(parts[0].Text))
		}
	}
	return sumParts(json.RawMessage(r.Type), r.Message)
}

// sessionKeyOf returns the key of the session to which a record belongs: the session
// of the file, or the sub-agent that the record names. A record of an unnamed
// sub-agent belongs to the sub-agent of its parent record; without a parent it begins
// a new one, named by its uuid.
func (f *sessionFile) sessionKeyOf(r fileRecord) sessionKey {
	key := sessionKey{session: string(r.Session)}
	if !r.Sidechain {
		return key
	}
	// A repeated record keeps the session to which its first occurrence belongs.
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

// finish ends the reading and returns the transcript, or an ErrForeign if no line was
// a record of the format. It counts the records of sessions that never began as
// ignored. It drops the state that only reading needs.
func (f *sessionFile) finish() (*Transcript, error) {
	if !f.recognized && f.hasForeignLines() {
		return nil, f.foreignError()
	}
	// The sessions of these records have no event, so there is no stream for them.
	for _, kinds := range f.pendingKinds {
		for _, kind := range kinds {
			f.countIgnored(kind)
		}
	}
	// A session can begin before the call that started it is read.
	for _, c := range f.order {
		c.spawner = f.spawners[c.key]
	}
	f.countSessions()
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
	// Only reading needs these; a Transcript holds the texts of its events and no
	// other part of the file.
	f.records, f.lineCounts, f.agentKeys, f.pending, f.pendingKinds, f.calls, f.earlyResults, f.awaitedSpawns = nil, nil, nil, nil, nil, nil, nil, nil
	return t, nil
}

// foreignError returns the ErrForeign of the file. It names the format that the file
// resembles.
func (f *sessionFile) foreignError() error {
	foreign := f.foreign
	if foreign == "" {
		foreign = "it has no record"
	}
	return fmt.Errorf("read %s: %w: %s%s; expected %s; formats that are known: %s",
		f.report.File, ErrForeign, foreign, f.similarFormat(), formatExamples[f.format], strings.Join(Formats(), ", "))
}

// formatExamples describes each format in an ErrForeign.
var formatExamples = map[string]string{
	claudeCode: `JSON lines with records such as {"type":"user","sessionId":…,"message":{"content":…}}`,
	codex:      `JSON lines with records such as {"timestamp":…,"type":"session_meta","payload":{"id":…}}`,
	opencode:   `a document {"info":…,"messages":[…]}, the database opencode.db, a folder with storage/session, or JSON lines with parts`,
	atif:       `a document {"schema_version":"ATIF-v1.…","session_id":…,"agent":…,"steps":[…]}`,
}

// countSessions counts the sessions, prompts, interruptions and sub-agents of the
// report. A count that the format reader has set to nil stays nil.
func (f *sessionFile) countSessions() {
	f.report.Sessions = len(f.order)
	for _, c := range f.order {
		for _, s := range c.steps {
			switch s := s.(type) {
			case *userPrompt:
				if c.key.agent == "" && f.report.Prompts != nil {
					*f.report.Prompts++
				}
			case fixedStep:
				if _, is := s.event.(events.SessionInterrupted); is && f.report.Interrupted != nil {
					*f.report.Interrupted++
				}
			case *modelCall:
				if s.starts {
					f.report.SubagentCalls++
				}
			}
		}
	}
}

// recordSpawn records that the call by started the sub-agent child. Only the first
// such call of a sub-agent counts. recordSpawn refuses a line that would form a cycle
// of sub-agents, or a chain of more than maxCandidates.
func (f *sessionFile) recordSpawn(child sessionKey, by *modelCall) {
	if f.spawners[child] != nil {
		return
	}
	// Follow the chain of calls upwards from the new one: it must end, and must not
	// contain the child.
	depth := 0
	for above := by; above != nil; above = f.spawners[above.reply.session.key] {
		if depth++; above.reply.session.key == child || depth > maxCandidates {
			f.refuse("sub-agent %q comes of itself, or of more than %d others", child.agent, maxCandidates)
			return
		}
	}
	f.spawners[child] = by
	by.starts = true
	by.began = by.began || by.result == nil
}

// spawnedByCall records that the latest call with this ID started the sub-agent
// child. If no such call was read yet, it defers the record until the call is read.
func (f *sessionFile) spawnedByCall(child sessionKey, id domain.CallID) {
	if all := f.calls[id]; len(all) > 0 {
		f.recordSpawn(child, all[len(all)-1])
	} else if !slices.Contains(f.awaitedSpawns[id], child) {
		f.awaitedSpawns[id] = append(f.awaitedSpawns[id], child)
	}
}

// maxHead is the number of bytes at the beginning of a file in which similarFormat
// searches.
const maxHead = 16 << 10

// otherFormats has texts that identify other formats if they occur at the beginning
// of a file. The first entry that matches counts.
var otherFormats = []struct{ mark, format string }{
	{`"session_meta"`, codex}, {`"schema_version": "ATIF`, atif}, {`"schema_version":"ATIF`, atif}, {`"response_item"`, codex},
	{`"callID"`, opencode}, {`"sessionID"`, opencode}, {`"messageID"`, opencode}, {"SQLite format 3", opencode},
	{`"record_type"`, codex}, {`"step-start"`, opencode}, {`"parts"`, "Gemini CLI or one derived from it"}, {`"toolCallId"`, "a program that speaks ACP"},
	{`"parentUuid"`, claudeCode}, {`"sessionId"`, claudeCode},
}

// formatTitles has the names of the programs or specifications of the formats.
var formatTitles = map[string]string{claudeCode: "Claude Code", codex: "Codex", opencode: "opencode", atif: "ATIF"}

// similarFormat returns a part of the error text, with the format of a foreign file,
// or "" if it is not known.
func (f *sessionFile) similarFormat() string {
	for _, l := range otherFormats {
		if bytes.Contains(f.head, []byte(l.mark)) && l.format != f.format {
			if title := formatTitles[l.format]; title != "" {
				return fmt.Sprintf(", and the file looks like one of %s (ledger import %s)", title, l.format)
			}
			return ", and the file looks like one of " + l.format
		}
	}
	return ""
}

// hasForeignLines reports whether a file without a record of the format has other
// lines than the unfinished beginning of one record. An empty file, or one whose
// first record is being written, is not foreign.
func (f *sessionFile) hasForeignLines() bool {
	refused := f.report.RefusedLines
	return f.report.Records > 0 || len(refused) > 1 || len(refused) == 1 && !strings.HasPrefix(refused[0].Reason, "torn")
}

// sessionID derives the ID of a session from its source name, its agent and the time
// at which it begins. [Transcript.useStoredIDs] replaces the ID if the session is on
// record with another time.
func (f *sessionFile) sessionID(key sessionKey, at time.Time) domain.SessionID {
	if f.format != claudeCode && key.agent != "" {
		key = sessionKey{session: key.agent}
	}
	return deriveID[domain.SessionID](domain.IDFromBytes, at, f.format, f.sourceName(key), key.agent, "session")
}

// sourceName returns the session ID in the records of a session. If they have none,
// it returns the digest of the file's first record. It escapes slashes, because
// sourceOf puts a slash before the name of a sub-agent.
func (f *sessionFile) sourceName(key sessionKey) string {
	if key.session == "" {
		return fmt.Sprintf("sha256:%x", f.firstDigest)
	}
	return escapeName(key.session)
}

// escapeName escapes the slashes of a name, see sourceOf.
func escapeName(name string) string {
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(name)
}

// sessionName returns the name under which the importer knows a session, from its
// format and the source that its origin names. In Claude Code a sub-agent has a name
// within its session only. In the other formats its own ID names it, also in a file
// that does not show its parent.
func sessionName(format, source string) string {
	if format == claudeCode {
		return source
	}
	if _, own, isChild := strings.Cut(source, "/"); isChild {
		source = own
	}
	return format + "\x00" + source
}

// parentName returns the name of the session that started the session of a source,
// and whether the source names one.
func parentName(format, source string) (name string, isChild bool) {
	of, _, isChild := strings.Cut(source, "/")
	return sessionName(format, of), isChild
}

// sourceOf returns the source that the origin of a session on record names: the
// sourceName, followed by a slash and the name of the agent for a sub-agent.
func (f *sessionFile) sourceOf(key sessionKey) string {
	if key.agent == "" {
		return f.sourceName(key)
	}
	if f.format != claudeCode {
		key.agent = escapeName(key.agent)
	}
	return f.sourceName(key) + "/" + key.agent
}
