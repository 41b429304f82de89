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

// An Importer adds transcripts to a ledger. It knows the imported sessions that
// are on record, so that two files of one session add to the same session, and a
// sub-agent finds the session that began it in either order of their files. It
// belongs to one goroutine.
type Importer struct {
	ledger   *events.Ledger
	sessions map[string]*imported // by what the format calls them
	byID     map[domain.SessionID]*imported
	children map[string][]*imported // sub-agents, by what the format calls the session of the person
	spawns   map[string]spawn       // of sub-agents, by what the format calls them
	searched map[string]bool        // the sessions of which all spawns on record are in spawns
}

// An imported session is one that is on record.
type imported struct {
	id     domain.SessionID
	source string
	parent domain.SessionID // zero where it is not on record
	call   bool             // the call that began it is on record
}

// NewImporter returns an importer into a ledger. It reads which sessions are on
// record.
func NewImporter(ctx context.Context, l *events.Ledger) (*Importer, error) {
	i := &Importer{
		ledger: l, sessions: map[string]*imported{}, byID: map[domain.SessionID]*imported{}, children: map[string][]*imported{},
		spawns: map[string]spawn{}, searched: map[string]bool{},
	}
	kinds := []string{events.SessionOpened{}.Kind(), events.SessionSpawned{}.Kind()}
	for v, err := range l.Scan(ctx, events.Query{Filter: events.Filter{Kinds: kinds}}) {
		if err != nil {
			return nil, fmt.Errorf("read which sessions are imported: %w", err)
		}
		switch e := v.Event.(type) {
		case events.SessionOpened:
			if e.Origin.Kind == events.Imported && e.Origin.Format == claudeCode {
				i.learn(e.Origin.Source, e.Session, e.Parent)
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

// learn takes a session that is on record. Of two under one name the first
// stays.
func (i *Importer) learn(source string, id, parent domain.SessionID) *imported {
	known := &imported{id: id, source: source, parent: parent}
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

// Import adds the events of t that are not on record, and returns how many it
// added, also with an error. What it added before an error stays, and a
// further Import goes on from there. A file that contradicts an event on record is
// an [ErrContradicted] that names file, stream and revision, and nothing of that
// stream is added. The records of a sub-agent are in two files that may differ: its
// events on record stay, and the report counts those that differ.
// Another program that appends at the same time makes it an
// [events.ErrConflict].
func (i *Importer) Import(ctx context.Context, t *Transcript) (added int, err error) {
	t.resolve(i)
	for _, c := range t.file.order {
		n, err := i.add(ctx, t, c)
		added += n
		if err != nil {
			t.Report.Added += added
			return added, t.failed(err)
		}
	}
	n, err := i.link(ctx, t)
	added += n
	t.Report.Added += added
	if err != nil {
		return added, t.failed(err)
	}
	return added, nil
}

// Import is [Importer.Import] by an importer of its own.
func (t *Transcript) Import(ctx context.Context, l *events.Ledger) (added int, err error) {
	i, err := NewImporter(ctx, l)
	if err != nil {
		return 0, t.failed(err)
	}
	return i.Import(ctx, t)
}

func (t *Transcript) failed(err error) error {
	if errors.Is(err, events.ErrConflict) {
		return fmt.Errorf("import %s: %w: another program appended to it; import the file again", t.Report.File, err)
	}
	return fmt.Errorf("import %s: %w", t.Report.File, err)
}

// resolve gives the chains the IDs of the sessions that are on record.
func (t *Transcript) resolve(i *Importer) {
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

// parent returns the session that began a sub-agent, and zero where that is not
// on record.
func (i *Importer) parent(t *Transcript, c *chain) domain.SessionID {
	switch {
	case c.key.agent == "":
		return domain.SessionID{}
	case c.spawner != nil && i.comesOf(c.spawner.reply.chain.session, c.session):
		t.Report.Ignored["sub-agent that comes of itself"]++
		c.spawner = nil
	case c.spawner != nil:
		return c.spawner.reply.chain.session
	}
	if main := t.file.chains[chainKey{session: c.key.session}]; main != nil {
		return main.session
	}
	if known := i.sessions[t.file.sourceName(c.key)]; known != nil {
		return known.id
	}
	return domain.SessionID{}
}

// add adds what the streams of a chain do not have.
func (i *Importer) add(ctx context.Context, t *Transcript, c *chain) (added int, err error) {
	own, err := read(ctx, i.ledger, events.SessionStream(c.session))
	if err != nil {
		return 0, err
	}
	if c.held = own.ids; !own.opened.IsZero() {
		c.opened = own.opened
	}
	parent := i.parent(t, c)
	if len(c.tools) > 0 {
		layer, err := read(ctx, i.ledger, events.LayerStream(c.layer()))
		if err != nil {
			return 0, err
		}
		maps.Copy(c.held, layer.ids)
		if added, err = layer.add(ctx, i.ledger, t, c, slices.Values(c.registrations())); err != nil {
			return added, err
		}
	}
	n, err := own.add(ctx, i.ledger, t, c, c.drafts(parent, own.learned(c)))
	if added += n; err != nil {
		return added, err
	}
	known := i.sessions[c.source]
	if known == nil {
		known = i.learn(c.source, c.session, parent)
	}
	if c.spawner != nil {
		known.parent, known.call = parent, true
	}
	return added, nil
}

// link records for each sub-agent on record the session and the call that began it,
// once they are known.
func (i *Importer) link(ctx context.Context, t *Transcript) (added int, err error) {
	of := map[string]bool{}
	for _, c := range t.file.order {
		of[t.file.sourceName(c.key)] = true
	}
	for child, c := range t.file.spawners {
		i.spawns[t.file.sourceOf(child)] = spawn{c.reply.chain.session, c.reply.message(), c.asked.ID}
	}
	for source := range of {
		for _, child := range i.children[source] {
			n, err := i.linkChild(ctx, source, child)
			if added += n; err != nil {
				return added, err
			}
		}
	}
	return added, nil
}

func (i *Importer) linkChild(ctx context.Context, source string, child *imported) (added int, err error) {
	if child.call {
		return 0, nil
	}
	if err := i.search(ctx, source); err != nil {
		return 0, err
	}
	by, known := i.spawns[child.source]
	main := i.sessions[source]
	switch {
	case known && by.parent != child.id && !i.comesOf(by.parent, child.id):
	case main != nil && child.parent.IsZero() && main.id != child.id:
		by = spawn{parent: main.id}
	default:
		return 0, nil
	}
	stream := events.SessionStream(child.id)
	held, err := read(ctx, i.ledger, stream)
	if err != nil {
		return 0, err
	}
	c := &chain{session: child.id, opened: held.opened}
	if d := c.spawned(by); held.events[tailOf(d.ID)].revision == 0 {
		d.Time = held.last
		if _, err := i.ledger.Append(ctx, stream, held.length, d); err != nil {
			return 0, err
		}
		added = 1
	}
	child.parent, child.call = by.parent, by.call != ""
	return added, nil
}

// comesOf reports whether a session is another one or one of its descendants. It
// assumes so beyond mostAlike generations.
func (i *Importer) comesOf(session, of domain.SessionID) bool {
	for range min(len(i.byID)+1, mostAlike) {
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

// search reads from the streams of a session and of its sub-agents which calls
// began sub-agents.
func (i *Importer) search(ctx context.Context, source string) error {
	if i.searched[source] {
		return nil
	}
	all := i.children[source]
	if main := i.sessions[source]; main != nil {
		all = append([]*imported{main}, all...)
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
			agent := agentIn(e.Structured)
			if name := source + "/" + agent; agent != "" && i.spawns[name] == (spawn{}) {
				i.spawns[name] = spawn{known.id, e.Message, e.Call}
			}
		}
	}
	i.searched[source] = true
	return nil
}

// One append adds at most so many events, and no more once their data is so
// long.
const (
	mostEvents = 256
	mostBytes  = 4 << 20
)

// add adds the drafts that the stream does not have. It adds none of them if one
// contradicts what is on record.
func (h *holding) add(ctx context.Context, l *events.Ledger, t *Transcript, c *chain, drafts iter.Seq[events.Draft]) (added int, err error) {
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
		more := weight(d.Event)
		if len(batch) == mostEvents || len(batch) > 0 && size+more > mostBytes {
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

// weight estimates the length of the data of an event.
func weight(e events.Event) int {
	switch e := e.(type) {
	case events.PromptAdmitted:
		return len(e.Text) + weightOf(e.Media)
	case events.ReplyReceived:
		size := len(e.Text) + len(e.Thinking)
		for _, c := range e.Calls {
			size += len(c.Input)
		}
		return size
	case events.CallSettled:
		return len(e.Text) + len(e.Structured) + weightOf(e.Content)
	case events.LateResultObserved:
		return len(e.Text) + len(e.Structured)
	case events.ContextAdded:
		return len(e.Text)
	case events.CommandRan:
		return len(e.Command) + len(e.Output)
	}
	return 0
}

func weightOf(content domain.Contents) int {
	size := len(content.Text())
	for _, m := range content.Media() {
		size += 2 * len(m.Data)
	}
	return size
}
