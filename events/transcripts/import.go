package transcripts

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// An Importer appends transcripts to a ledger. It holds the imported sessions on
// record, so that two files of one session append to the same session and a sub-agent
// finds its parent in either order of their files. It does not see the sessions that
// another Importer adds. It belongs to one goroutine.
type Importer struct {
	ledger *events.Ledger
	// sessions has the imported sessions by their names in the format, and byID by
	// ID.
	sessions map[string]*importedSession
	byID     map[domain.SessionID]*importedSession
	// children has the sub-agents by the name of their main session.
	children map[string][]*importedSession
	// spawns has the calls that started sub-agents, by the name of the sub-agent.
	spawns map[string]spawnCall
	// searched has the main sessions whose streams loadSpawns has read.
	searched map[string]bool
}

// An importedSession is an imported session on record.
type importedSession struct {
	id domain.SessionID
	// source is the name of the session in the format.
	source string
	// parent is the session that started it, or zero if that is not on record.
	parent domain.SessionID
	// call reports that the call that started it is on record.
	call bool
}

// NewImporter returns an importer into a ledger. It scans the ledger for the imported
// sessions on record.
func NewImporter(ctx context.Context, l *events.Ledger) (*Importer, error) {
	i := &Importer{
		ledger: l, sessions: map[string]*importedSession{}, byID: map[domain.SessionID]*importedSession{}, children: map[string][]*importedSession{},
		spawns: map[string]spawnCall{}, searched: map[string]bool{},
	}
	kinds := []string{events.SessionOpened{}.Kind(), events.SessionSpawned{}.Kind()}
	for v, err := range l.Scan(ctx, events.Query{Filter: events.Filter{Kinds: kinds}}) {
		if err != nil {
			return nil, fmt.Errorf("read which sessions are imported: %w", err)
		}
		switch e := v.Event.(type) {
		case events.SessionOpened:
			if e.Origin.Kind == events.Imported && e.Origin.Format == claudeCode {
				i.addSession(e.Origin.Source, e.Session, e.Parent)
			}
		case events.SessionSpawned:
			id, _ := v.Stream.Session()
			if known := i.byID[id]; known != nil {
				known.parent, known.call = e.Parent, known.call || e.Call != ""
			}
		}
	}
	return i, nil
}

// addSession adds a session on record. Of two sessions with one name, the first
// receives later imports.
func (i *Importer) addSession(source string, id, parent domain.SessionID) *importedSession {
	known := &importedSession{id: id, source: source, parent: parent}
	i.byID[id] = known
	if i.sessions[source] != nil {
		return known
	}
	i.sessions[source] = known
	if of, _, isChild := strings.Cut(source, "/"); isChild {
		i.children[of] = append(i.children[of], known)
	}
	return known
}

// Import appends the events of t that are not on record and returns their number,
// also with an error. Events appended before an error stay, and a further Import
// continues after them. If the file contradicts an event on record, Import returns an
// [ErrContradicted] that names the file, stream and revision, and leaves that stream
// unchanged. The records of a sub-agent are in two files that may differ: its events
// on record stay, and the report counts the differences. Import returns
// [events.ErrConflict] if another program appends at the same time.
//
// Import handles the sessions in the order of the file. For each it reads the stream
// on record, compares each event of the file by its derived ID, and appends the
// missing ones. At the end it links sub-agents to the calls that started them, in
// this file or in files imported before, for which it may read the streams of their
// sessions too.
func (i *Importer) Import(ctx context.Context, t *Transcript) (added int, err error) {
	t.useStoredIDs(i)
	for _, c := range t.file.order {
		n, err := i.importSession(ctx, t, c)
		added += n
		if err != nil {
			t.Report.Added += added
			return added, t.importError(err)
		}
	}
	n, err := i.linkAgents(ctx, t)
	added += n
	t.Report.Added += added
	if err != nil {
		return added, t.importError(err)
	}
	return added, nil
}

// Import is [Importer.Import] of a new Importer.
func (t *Transcript) Import(ctx context.Context, l *events.Ledger) (added int, err error) {
	i, err := NewImporter(ctx, l)
	if err != nil {
		return 0, t.importError(err)
	}
	return i.Import(ctx, t)
}

// importError adds the file, and for a conflict the advice, to an error.
func (t *Transcript) importError(err error) error {
	if errors.Is(err, events.ErrConflict) {
		return fmt.Errorf("import %s: %w: another program appended to it; import the file again", t.Report.File, err)
	}
	return fmt.Errorf("import %s: %w", t.Report.File, err)
}

// useStoredIDs replaces the derived IDs of sessions that are on record with the
// stored ones.
func (t *Transcript) useStoredIDs(i *Importer) {
	for _, c := range t.file.order {
		if known := i.sessions[c.source]; known != nil {
			if t.Session == c.session {
				t.Session = known.id
			}
			c.session = known.id
		}
	}
	t.Report.Session = t.Session
}

// parent returns the session that started a sub-agent. That is the session of the
// call that started it or, if the call is unknown, the user's session with the
// session ID of the sub-agent's records. parent returns zero for a session of a user
// and for an unknown parent. It ignores a call that would make the sub-agent a
// descendant of itself.
func (i *Importer) parent(t *Transcript, c *fileSession) domain.SessionID {
	switch {
	case c.key.agent == "":
		return domain.SessionID{}
	// Another file recorded the parent of this session, and both together would form
	// a cycle.
	case c.spawner != nil && i.isDescendant(c.spawner.reply.session.session, c.session):
		t.Report.Ignored["sub-agent that comes of itself"]++
		c.spawner = nil
	case c.spawner != nil:
		return c.spawner.reply.session.session
	}
	if main := t.file.sessions[sessionKey{session: c.key.session}]; main != nil {
		return main.session
	}
	if known := i.sessions[t.file.sourceName(c.key)]; known != nil {
		return known.id
	}
	return domain.SessionID{}
}

// importSession appends the missing events of a session and of its layer, and returns
// their number. The layer comes first, so that the turns refer to registrations on
// record.
func (i *Importer) importSession(ctx context.Context, t *Transcript, c *fileSession) (added int, err error) {
	own, err := readStored(ctx, i.ledger, events.SessionStream(c.session))
	if err != nil {
		return 0, err
	}
	// From here on the IDs of the session are the stored ones.
	if c.stored = own.ids; !own.opened.IsZero() {
		c.opened = own.opened
	}
	parent := i.parent(t, c)
	if len(c.tools) > 0 {
		layer, err := readStored(ctx, i.ledger, events.LayerStream(c.layerID()))
		if err != nil {
			return 0, err
		}
		maps.Copy(c.stored, layer.ids)
		if added, err = layer.appendMissing(ctx, i.ledger, t, c, slices.Values(c.layerDrafts())); err != nil {
			return added, err
		}
	}
	n, err := own.appendMissing(ctx, i.ledger, t, c, c.drafts(parent, own.learnedSettings(c)))
	if added += n; err != nil {
		return added, err
	}
	// Later files of this importer find the session.
	known := i.sessions[c.source]
	if known == nil {
		known = i.addSession(c.source, c.session, parent)
	}
	if c.spawner != nil {
		known.parent, known.call = parent, true
	}
	return added, nil
}

// linkAgents records the parent and the call of each sub-agent of the sessions of t
// that are known and not on record yet. The sub-agent can be in this file or in a
// file imported before. linkAgents returns the number of events.
func (i *Importer) linkAgents(ctx context.Context, t *Transcript) (added int, err error) {
	of := map[string]bool{}
	for _, c := range t.file.order {
		of[t.file.sourceName(c.key)] = true
	}
	// The calls of this file need no search in the ledger.
	for child, c := range t.file.spawners {
		i.spawns[t.file.sourceOf(child)] = spawnCall{c.reply.session.session, c.reply.messageID(), c.call.ID}
	}
	for source := range of {
		for _, child := range i.children[source] {
			n, err := i.linkAgent(ctx, source, child)
			if added += n; err != nil {
				return added, err
			}
		}
	}
	return added, nil
}

// linkAgent records the parent, and the call if it is known, of one sub-agent. It
// never records a cycle.
func (i *Importer) linkAgent(ctx context.Context, source string, child *importedSession) (added int, err error) {
	if child.call {
		return 0, nil
	}
	if err := i.loadSpawns(ctx, source); err != nil {
		return 0, err
	}
	by, known := i.spawns[child.source]
	main := i.sessions[source]
	switch {
	// Record the call that started the sub-agent.
	case known && by.parent != child.id && !i.isDescendant(by.parent, child.id):
	// The call is not known: record the main session as the parent. A later file may
	// have the call.
	case main != nil && child.parent.IsZero() && main.id != child.id:
		by = spawnCall{parent: main.id}
	default:
		return 0, nil
	}
	stream := events.SessionStream(child.id)
	held, err := readStored(ctx, i.ledger, stream)
	if err != nil {
		return 0, err
	}
	c := &fileSession{session: child.id, opened: held.opened}
	if d := c.spawnedDraft(by); held.events[suffixOf(d.ID)].revision == 0 {
		// The event is appended now, after all events of the stream.
		d.Time = held.last
		if _, err := i.ledger.Append(ctx, stream, held.length, d); err != nil {
			return 0, err
		}
		added = 1
	}
	child.parent, child.call = by.parent, by.call != ""
	return added, nil
}

// isDescendant reports whether session is of or a descendant of it. Beyond
// maxCandidates generations it returns true, so that a cycle on record does not loop
// for ever.
func (i *Importer) isDescendant(session, of domain.SessionID) bool {
	for range min(len(i.byID)+1, maxCandidates) {
		known := i.byID[session]
		switch {
		case session == of:
			return true
		case known == nil || known.parent.IsZero():
			return false
		}
		session = known.parent
	}
	return true
}

// loadSpawns reads the calls that started sub-agents from the streams of a session
// and of its sub-agents. It finds them by the structured value of a settlement, which
// names the sub-agent. It reads the streams of each session only once.
func (i *Importer) loadSpawns(ctx context.Context, source string) error {
	if i.searched[source] {
		return nil
	}
	all := i.children[source]
	if main := i.sessions[source]; main != nil {
		all = append([]*importedSession{main}, all...)
	}
	for _, known := range all {
		for v, err := range i.ledger.Read(ctx, events.SessionStream(known.id), 0) {
			if err != nil {
				return err
			}
			e, ok := v.Event.(events.CallSettled)
			if !ok {
				continue
			}
			agent := agentName(e.Structured)
			if name := source + "/" + agent; agent != "" && i.spawns[name] == (spawnCall{}) {
				i.spawns[name] = spawnCall{known.id, e.Message, e.Call}
			}
		}
	}
	i.searched[source] = true
	return nil
}

// The limits of one append: the number of events, and the bytes of their data. An
// event above the limit is appended alone.
const (
	maxBatchEvents = 256
	maxBatchBytes  = 4 << 20
)

// appendMissing appends the drafts that are not on record, in batches, and returns
// their number. It compares all drafts before it appends the first, so that a
// contradiction leaves the stream unchanged. It counts the tolerated differences in
// the report of t.
func (h *storedStream) appendMissing(ctx context.Context, l *events.Ledger, t *Transcript, c *fileSession, drafts iter.Seq[events.Draft]) (added int, err error) {
	// A contradiction must leave the stream unchanged, so compare everything before
	// the first append.
	if h.length > 0 {
		differ := 0
		for d := range drafts {
			_, verdict, err := h.compare(d, c.key.agent != "")
			if err != nil {
				return 0, err
			}
			if verdict == differs {
				differ++
			}
		}
		if differ > 0 {
			t.Report.Ignored["differs from what is on record"] += differ
		}
	}
	var batch []events.Draft
	size := 0
	flush := func() error {
		if _, err := l.Append(ctx, h.stream, h.length, batch...); err != nil {
			return err
		}
		h.length += events.Revision(len(batch))
		added += len(batch)
		batch, size = batch[:0], 0
		return nil
	}
	for d := range drafts {
		d, verdict, err := h.compare(d, c.key.agent != "")
		if err != nil {
			return added, err
		}
		if verdict != missing {
			continue
		}
		more := eventSize(d.Event)
		if len(batch) == maxBatchEvents || len(batch) > 0 && size+more > maxBatchBytes {
			if err := flush(); err != nil {
				return added, err
			}
		}
		batch, size = append(batch, d), size+more
	}
	if len(batch) == 0 {
		return added, nil
	}
	return added, flush()
}

// eventSize estimates the bytes of the data of an event from its long fields.
func eventSize(e events.Event) int {
	switch e := e.(type) {
	case events.PromptAdmitted:
		return len(e.Text) + contentSize(e.Media)
	case events.ReplyReceived:
		size := len(e.Text) + len(e.Thinking)
		for _, c := range e.Calls {
			size += len(c.Input)
		}
		return size
	case events.CallSettled:
		return len(e.Text) + len(e.Structured) + contentSize(e.Content)
	case events.LateResultObserved:
		return len(e.Text) + len(e.Structured)
	case events.ContextAdded:
		return len(e.Text)
	case events.CommandRan:
		return len(e.Command) + len(e.Output)
	}
	return 0
}

// contentSize estimates the bytes of contents as JSON, with twice the bytes of media
// for their base64.
func contentSize(content domain.Contents) int {
	size := len(content.Text())
	for _, m := range content.Media() {
		size += 2 * len(m.Data)
	}
	return size
}
