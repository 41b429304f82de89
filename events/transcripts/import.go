package transcripts

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// An Importer appends transcripts to a ledger. It remembers the imported sessions of
// the ledger. Two files of one session thus append to the same session, and a
// sub-agent finds its parent in either order of their files. An Importer does not see
// the sessions that another Importer adds. It belongs to one goroutine.
type Importer struct {
	ledger *events.Ledger
	// sessions has the imported sessions by sessionName, and byID has them by session
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

// An importedSession is an imported session of the ledger.
type importedSession struct {
	id domain.SessionID
	// source is the name of the session in the format, and name its sessionName.
	format, source, name string
	// parent is the session that started this one, or zero if the ledger does not
	// record it.
	parent domain.SessionID
	// call reports that the ledger records the call that started this session.
	call bool
}

// NewImporter returns an importer into a ledger. It scans the ledger for imported
// sessions.
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
			if e.Origin.Kind == events.Imported && slices.Contains(Formats(), e.Origin.Format) {
				i.addSession(e.Origin.Format, e.Origin.Source, e.Session, e.Parent)
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

// addSession adds a session of the ledger to the importer and returns it. If two
// sessions have the same name, the first receives later imports.
func (i *Importer) addSession(format, source string, id, parent domain.SessionID) *importedSession {
	known := &importedSession{id: id, format: format, source: source, name: sessionName(format, source), parent: parent}
	i.byID[id] = known
	if i.sessions[known.name] != nil {
		return known
	}
	i.sessions[known.name] = known
	i.addChild(known, source)
	return known
}

// addChild adds a session to the sub-agents of the session that its source names.
func (i *Importer) addChild(known *importedSession, source string) {
	if of, isChild := parentName(known.format, source); isChild && !slices.Contains(i.children[of], known) {
		i.children[of] = append(i.children[of], known)
	}
}

// Import appends the events of t that the ledger lacks. It returns the number of
// events added, also with an error: events appended before an error stay, and a
// further Import of the file continues after them. If the file contradicts a recorded
// event, the error is an [ErrContradicted] that names the file, stream and revision,
// and that stream is unchanged. For a sub-agent a difference is no error: two files
// have its records and may differ, so the recorded events stay and the report counts
// the differences. If another program appends at the same time, the error is an
// [events.ErrConflict].
//
// Import handles the sessions in the order of the file. For each session it reads the
// recorded stream, finds the recorded event of each event of the file by its derived
// ID, and appends the missing events. At the end it records for each sub-agent the
// call that started it. The call can be in this file or in a file imported before;
// Import may then read the streams of further sessions.
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

// Import imports t into a ledger with a new Importer. See [Importer.Import].
func (t *Transcript) Import(ctx context.Context, l *events.Ledger) (added int, err error) {
	i, err := NewImporter(ctx, l)
	if err != nil {
		return 0, t.importError(err)
	}
	return i.Import(ctx, t)
}

// importError wraps an error with the name of the file. For a conflict it adds the
// advice to import the file again.
func (t *Transcript) importError(err error) error {
	if errors.Is(err, events.ErrConflict) {
		return fmt.Errorf("import %s: %w: another program appended to it; import the file again", t.Report.File, err)
	}
	return fmt.Errorf("import %s: %w", t.Report.File, err)
}

// useStoredIDs replaces the derived session IDs by the stored ones, for the sessions
// that the ledger has.
func (t *Transcript) useStoredIDs(i *Importer) {
	for _, c := range t.file.order {
		if known := i.sessions[sessionName(c.format, c.source)]; known != nil {
			if t.Session == c.session {
				t.Session = known.id
			}
			c.session = known.id
		}
	}
	t.Report.Session = t.Session
}

// parent returns the ID of the session that started the sub-agent c: the session of
// the call that started it, or, if the file does not show the call, the user's
// session with the session ID in the records of c. It returns zero if c is the
// session of a user or if the parent is unknown. It ignores a call that would make
// the sub-agent a descendant of itself.
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
	of, _ := parentName(c.format, c.source)
	main := domain.SessionID{}
	if c := t.file.named[of]; c != nil {
		main = c.session
	} else if known := i.sessions[of]; known != nil {
		main = known.id
	}
	if main.IsZero() || i.isDescendant(main, c.session) {
		return domain.SessionID{}
	}
	return main
}

// importSession appends the missing events of a session and of its layer, and returns
// the number of events added. It appends to the layer first, so that the turns refer
// to recorded registrations.
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
	known := i.sessions[sessionName(c.format, c.source)]
	if known == nil {
		known = i.addSession(c.format, c.source, c.session, parent)
	}
	i.addChild(known, c.source)
	if c.spawner != nil {
		known.parent, known.call = parent, true
	}
	return added, nil
}

// linkAgents records, for the sub-agents of the sessions of t, the parent and the
// call that started them, if these are known and not recorded yet. A sub-agent can be
// in this file or in a file imported before. linkAgents returns the number of events
// added.
func (i *Importer) linkAgents(ctx context.Context, t *Transcript) (added int, err error) {
	of := map[string]bool{}
	for _, c := range t.file.order {
		main, _ := parentName(c.format, c.source)
		of[main], of[sessionName(c.format, c.source)] = true, true
	}
	// The calls of this file need no search in the ledger.
	for child, c := range t.file.spawners {
		i.spawns[sessionName(t.file.format, t.file.sourceOf(child))] = spawnCall{c.reply.session.session, c.reply.messageID(), c.call.ID}
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

// linkAgent records the parent of the sub-agent child, and the call that started it
// if that is known. source is the name of the main session of child. linkAgent never
// records a cycle. It returns the number of events added, 0 or 1.
func (i *Importer) linkAgent(ctx context.Context, source string, child *importedSession) (added int, err error) {
	if child.call {
		return 0, nil
	}
	if err := i.loadSpawns(ctx, source); err != nil {
		return 0, err
	}
	by, known := i.spawns[child.name]
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
	c := &fileSession{format: child.format, session: child.id, opened: held.opened}
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

// isDescendant reports whether the first session is the second one or a descendant of
// it. After maxCandidates generations it returns true, so that it ends for a recorded
// cycle.
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

// loadSpawns finds the calls that started sub-agents in the streams of the main
// session named source and of its sub-agents. The structured value of the settlement
// of such a call names the sub-agent. loadSpawns reads these streams only on its
// first call for a source.
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
			agent := agentName(known.format, e.Structured)
			name := sessionName(known.format, known.source+"/"+escapeName(agent))
			if known.format == claudeCode {
				name = source + "/" + agent
			}
			if agent != "" && i.spawns[name] == (spawnCall{}) {
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

// appendMissing appends to h, in batches, the drafts that the stream lacks, and
// returns the number of events added. It compares all drafts before it appends the
// first one, so that a contradiction leaves the stream unchanged. It counts the
// tolerated differences in the report of t.
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

// contentSize estimates the size of contents in JSON, in bytes. It counts media
// twice, because base64 makes them longer.
func contentSize(content domain.Contents) int {
	size := len(content.Text())
	for _, m := range content.Media() {
		size += 2 * len(m.Data)
	}
	return size
}
