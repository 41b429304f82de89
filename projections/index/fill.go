package index

import (
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// The bounds of a batch and of the rows in memory.
const (
	// maxBatchEvents is the number of events after which a batch ends.
	maxBatchEvents = 8192
	// maxBatchText is the number of bytes of texts after which a batch ends.
	maxBatchText = 8 << 20
	// maxCachedCalls is the number of calls in memory after which a filler forgets all
	// rows at the end of a batch.
	maxCachedCalls = 8192
	// maxCachedMessages is the same for messages, maxCachedOffers for offers and
	// maxCachedPaths for paths.
	maxCachedMessages = 32768
	maxCachedOffers   = 1024
	maxCachedPaths    = 32768
	// rowsAtOnce is the number of rows of a statement, and namesAtOnce that of the table names.
	rowsAtOnce, namesAtOnce = 8, 64
)

// A messageKey identifies a row of the table messages.
type messageKey struct {
	session domain.SessionID
	message domain.MessageID
	kind    string
}

// A turnKey identifies a row of the table turns.
type turnKey struct {
	session domain.SessionID
	turn    domain.TurnID
}

// A filler applies events to a database, one batch after another. Between two batches it
// keeps the rows of the latest events in memory. One goroutine uses it.
type filler struct {
	*database
	progress progress

	sessions map[domain.SessionID]*sessionRow
	calls    map[calls.Key]*callRow
	messages map[messageKey]bool // the database has a row of each
	turns    map[turnKey]int64   // the offers of turns
	offers   map[string]int64    // by projections.OfferKey
	paths    map[string]int64    // the numbers of paths
	changed  struct {
		sessions []*sessionRow // with dirty set
		calls    []*callRow
	}
	names names // not in the database yet
	// The tables to which most events add rows.
	insert struct{ sessions, calls, messages, turns, texts, search, names *inserter }
	// The last number of a session and the last ID of a row.
	last struct{ session, call, message, offer, text, file, path int64 }

	batch struct {
		open      bool // a transaction is open
		events    int
		textBytes int
	}
	maxEvents int // of a batch
	// bulk: the database is new and no link names it. All batches are one transaction, which
	// finish ends.
	bulk bool
}

// newFiller returns a filler that continues a database. batch is the largest number of
// events in a transaction.
func newFiller(d *database, batch int) (*filler, error) {
	version, err := d.number("PRAGMA user_version")
	if err != nil {
		return nil, err
	}
	if version != schemaVersion {
		return nil, otherSchema(version)
	}
	f := fillerOf(d, batch)
	return f, f.load()
}

// newBulkFiller returns a filler of a new database, of which it makes the tables, with or
// without those of the full text. The caller calls finish last.
func newBulkFiller(d *database, batch int, texts bool) (*filler, error) {
	tables, _ := creation(texts)
	err := d.script(fmt.Sprintf("%s\nINSERT INTO index_state (id, schema_version, full_text, events) VALUES (1, %d, %d, 0);\nPRAGMA user_version = %d;",
		tables, schemaVersion, oneIf(texts), schemaVersion))
	if err != nil {
		return nil, err
	}
	f := fillerOf(d, batch)
	f.bulk = true
	return f, f.load()
}

// insertRows begins a statement that inserts rows. After a violated constraint the caller
// abandons the transaction, so the statement need not undo its first rows. A statement that
// can undo them makes SQLite write out the full text before each.
const insertRows = "INSERT OR FAIL"

// fillerOf returns a filler that has read nothing.
func fillerOf(d *database, batch int) *filler {
	f := &filler{database: d, maxEvents: batch}
	f.insert.sessions, f.insert.calls = d.inserter(insertRows, "sessions", rowsAtOnce, sessionColumns...), d.inserter(insertRows, "calls", rowsAtOnce, callColumns...)
	f.insert.messages, f.insert.turns = d.inserter(insertRows, "messages", rowsAtOnce, messageColumns...), d.inserter(insertRows, "turns", rowsAtOnce, turnRowColumns...)
	f.insert.texts, f.insert.search = d.inserter(insertRows, "texts", rowsAtOnce, textColumnNames...), d.inserter(insertRows, "text_search", 1, "rowid", "text")
	f.insert.names = d.inserter("INSERT OR IGNORE", "names", namesAtOnce, "segment", "key", "id")
	return f
}

// finish ends a bulk fill: it writes the progress and makes the indexes that filling does
// not read. It leaves the database to readers and writers in the ordinary mode.
func (f *filler) finish() error {
	if f.batch.open {
		if err := f.save(); err != nil {
			return err
		}
	}
	_, indexes := creation(f.progress.texts)
	return f.script(indexes + "PRAGMA locking_mode = NORMAL;\nPRAGMA journal_mode = WAL;")
}

// load reads the progress of the database, and forgets all rows in memory.
func (f *filler) load() error {
	f.forget()
	f.progress = progress{}
	if err := f.query(f.progress.scan, readProgress); err != nil {
		return err
	}
	for _, counter := range []struct {
		to   *int64
		text string
	}{
		{&f.last.session, "SELECT max(number) FROM sessions"}, {&f.last.call, "SELECT max(id) FROM calls"}, {&f.last.message, "SELECT max(id) FROM messages"},
		{&f.last.offer, "SELECT max(offer) FROM offers"}, {&f.last.text, "SELECT max(id) FROM texts"}, {&f.last.file, "SELECT max(id) FROM files"},
		{&f.last.path, "SELECT max(path) FROM paths"},
	} {
		if counter.to == &f.last.text && !f.progress.texts {
			continue
		}
		var err error
		if *counter.to, err = f.number(counter.text); err != nil {
			return err
		}
	}
	return nil
}

// forget removes all rows from memory.
func (f *filler) forget() {
	f.sessions, f.calls = map[domain.SessionID]*sessionRow{}, map[calls.Key]*callRow{}
	f.messages, f.turns, f.offers, f.paths = map[messageKey]bool{}, map[turnKey]int64{}, map[string]int64{}, map[string]int64{}
	f.changed.sessions, f.changed.calls = nil, nil
}

// add applies an event, in a transaction that it begins if none is open. It commits the
// transaction when the batch is full. After an error the caller calls abandon.
func (f *filler) add(v events.Envelope) error {
	if !f.batch.open {
		if err := f.begin(); err != nil {
			return err
		}
	}
	if err := f.apply(v); err != nil {
		return fmt.Errorf("index %s at position %s: %w", v.Event.Kind(), v.Position, err)
	}
	p := &f.progress
	if p.events == 0 {
		p.first = eventPoint{Event: v.ID, Position: v.Position}
	}
	p.events++
	p.last, p.time = eventPoint{v.ID, v.Position, v.Stream, v.Revision}, v.Time.UTC().Format(timeLayout)
	if f.batch.events++; f.batch.events >= f.maxEvents || f.batch.textBytes >= maxBatchText {
		return f.commit()
	}
	return nil
}

// begin opens a transaction. If another program has changed the index since the last one,
// begin returns an errUnfit, because the rows in memory may not be current.
func (f *filler) begin() error {
	if err := f.script("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	f.batch.open = true
	if f.bulk {
		return nil
	}
	now := progress{}
	if err := f.query(now.scan, readProgress); err != nil {
		return err
	}
	if now != f.progress {
		return fmt.Errorf("%w: another program changes it", errUnfit)
	}
	return nil
}

// commit ends a batch: it writes the changed rows, and, except in a bulk fill, the progress
// and ends the transaction. It does nothing if no transaction is open.
func (f *filler) commit() error {
	if !f.batch.open {
		return nil
	}
	var err error
	if f.bulk {
		if err = f.flush(); err == nil && len(f.names.rows) >= maxNames {
			err = f.flushNames()
		}
	} else {
		err = f.save()
	}
	if err != nil {
		return err
	}
	f.batch.events, f.batch.textBytes = 0, 0
	if len(f.calls) > maxCachedCalls || len(f.messages) > maxCachedMessages || len(f.turns) > maxCachedMessages || len(f.offers) > maxCachedOffers || len(f.paths) > maxCachedPaths || len(f.sessions) > maxCachedCalls {
		f.forget()
	}
	return nil
}

// save writes the changed rows and the progress, and ends the transaction.
func (f *filler) save() error {
	if err := f.flush(); err != nil {
		return err
	}
	if err := f.flushNames(); err != nil {
		return err
	}
	p := f.progress
	_, err := f.exec(`UPDATE index_state SET events = ?, first_event = ?, first_position = ?, last_event = ?, last_position = ?, last_stream = ?, last_revision = ?, last_time = ?`,
		p.events, p.first.Event, exactPosition(p.first.Position), p.last.Event, exactPosition(p.last.Position), string(p.last.Stream), p.last.Revision, p.time)
	if err == nil {
		err = f.script("COMMIT")
	}
	if err == nil {
		f.batch.open = false
	}
	return err
}

// abandon rolls an open transaction back. A bulk fill has no journal, and its caller removes
// the file.
func (f *filler) abandon() error {
	if !f.batch.open || f.bulk {
		return nil
	}
	f.batch.open = false
	return f.script("ROLLBACK")
}

// The statements of flush.
var updateSession, updateCall = change("sessions", sessionColumns), change("calls", callColumns)

// flush writes the changed sessions and calls, and the collected rows except names.
func (f *filler) flush() error {
	for _, s := range f.changed.sessions {
		if err := f.store(f.insert.sessions, updateSession, s, s.stored); err != nil {
			return err
		}
		s.stored, s.dirty = true, false
	}
	// In the order of the IDs, so that rows are added at the end of the table.
	slices.SortFunc(f.changed.calls, func(a, b *callRow) int { return int(a.id - b.id) })
	for _, c := range f.changed.calls {
		if err := f.store(f.insert.calls, updateCall, c, c.stored); err != nil {
			return err
		}
		c.stored, c.dirty = true, false
	}
	clear(f.changed.sessions)
	clear(f.changed.calls)
	f.changed.sessions, f.changed.calls = f.changed.sessions[:0], f.changed.calls[:0]
	for _, t := range f.inserters {
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

// store updates a row that the database has, and otherwise inserts it.
func (f *filler) store(to *inserter, update string, r row, stored bool) error {
	if stored {
		return f.execRow(update, r)
	}
	return to.addRow(r)
}

// session returns the row of the session of the event v, which the caller may change. It
// makes the row at the first event of the session.
func (f *filler) session(id domain.SessionID, v events.Envelope) (*sessionRow, error) {
	s, ok := f.sessions[id]
	if !ok {
		s = &sessionRow{}
		err := f.query(s.scan, readSession, id)
		if err != nil {
			return nil, err
		}
		if !s.stored {
			f.last.session++
			s.Session, s.number, s.openedPosition, s.known = calls.Session{ID: id, Opened: v.Time}, f.last.session, v.Position, true
			f.nameEnd(sessionNames, id.String(), s.number)
		}
		f.sessions[id] = s
	}
	if !s.dirty {
		s.dirty = true
		f.changed.sessions = append(f.changed.sessions, s)
	}
	return s, nil
}

var (
	readSession = selection("sessions", sessionColumns) + " WHERE session = ?"
	readCall    = selection("calls", callColumns) + " WHERE session = ? AND message = ? AND call = ?"
)

// find returns the row of a call, which the caller may change, or nil if the log has no
// event of the call so far.
func (f *filler) find(s *sessionRow, message domain.MessageID, id domain.CallID) (*callRow, error) {
	key := calls.Key{Session: s.ID, Message: message, Call: id}
	c, ok := f.calls[key]
	if !ok {
		if s.known {
			return nil, nil
		}
		c = &callRow{}
		if err := f.query(c.scan, readCall, s.ID, message, string(id)); err != nil || !c.stored {
			return nil, err
		}
		f.calls[key] = c
	}
	if !c.dirty {
		c.dirty = true
		f.changed.calls = append(f.changed.calls, c)
	}
	return c, nil
}

// call returns the row of a call, which the caller may change. It makes the row at the
// first event of the call.
func (f *filler) call(s *sessionRow, message domain.MessageID, id domain.CallID, tool string) (*callRow, error) {
	c, err := f.find(s, message, id)
	if err != nil || c != nil {
		return c, err
	}
	f.last.call++
	c = &callRow{Call: s.NewCall(message, id, tool), id: f.last.call, dirty: true}
	f.nameBegin(callNames, string(id), c.id)
	f.nameEnd(callNames, string(id), c.id)
	f.calls[calls.Key{Session: s.ID, Message: message, Call: id}] = c
	f.changed.calls = append(f.changed.calls, c)
	return c, nil
}

// has reports whether the database has the message of a key.
func (f *filler) has(s *sessionRow, key messageKey) (bool, error) {
	if f.messages[key] || s.known {
		return f.messages[key], nil
	}
	if err := f.insert.messages.flush(); err != nil {
		return false, err
	}
	n, err := f.number("SELECT count(*) FROM messages WHERE session = ? AND message = ? AND kind = ?", key.session, key.message, key.kind)
	return n > 0, err
}

// selection returns the beginning of a statement that reads columns of a table.
func selection(table string, columns []string) string {
	text := "SELECT "
	for i, name := range columns {
		if i > 0 {
			text += ", "
		}
		text += name
	}
	return text + " FROM " + table
}
