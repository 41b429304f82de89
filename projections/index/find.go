package index

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// The bounds of a look-up.
const (
	// MaxFound is the largest number of things that a look-up counts.
	MaxFound = 1000
	// maxVisited is the largest number of rows that a look-up compares with an ID.
	maxVisited = 50_000
)

// Found has the things that an ID identifies.
type Found[T any] struct {
	// All are the things in the order of the log, at most MaxFound.
	All []T
	// More reports that there may be further ones.
	More bool
}

// Abbreviates reports whether id is a shortened form of name. A shortened form is the
// beginning of the name, the beginning without a prefix such as "ses_", the end of the
// name, or the beginning and the end around an ellipsis. Case does not matter.
func Abbreviates(id, name string) bool {
	s, name := parseShort(id), strings.ToLower(name)
	if s.split {
		return len(s.head)+len(s.tail) <= len(name) && strings.HasPrefix(name, s.head) && strings.HasSuffix(name, s.tail)
	}
	_, bare, _ := strings.Cut(name, "_")
	return strings.HasPrefix(name, s.head) || bare != "" && strings.HasPrefix(bare, s.head) || strings.HasSuffix(name, s.head)
}

// A shortID is a shortened ID in lower case: the texts around its ellipsis, or one text that
// may be a beginning or an end.
type shortID struct {
	head, tail string
	split      bool
}

// parseShort returns the parts of a shortened ID.
func parseShort(id string) (s shortID) {
	s.head, s.tail, s.split = strings.Cut(strings.Replace(strings.ToLower(id), "...", "…", 1), "…")
	return s
}

// begins returns the text that begins each name which the ID shortens, or false if names
// that have it at their end are the ones to read.
func (s shortID) begins() (string, bool) { return s.head, !s.split || s.tail == "" }

// ends returns the text that ends such names, or false if begins has the text to search.
func (s shortID) ends() (string, bool) {
	if s.split {
		return s.tail, s.tail != ""
	}
	return s.head, true
}

// A keyRange is a range of texts in the order of an index.
type keyRange struct{ from, through string }

// beginning returns the range of the texts that begin with a text.
func beginning(text string) keyRange { return keyRange{text, text + "\U0010FFFF"} }

// idRanges returns the ranges of the IDs with a prefix such as "ses" that begin with a text
// in lower case, with or without the prefix.
func idRanges(prefix, text string) []keyRange {
	prefix += "_"
	if rest, ok := strings.CutPrefix(text, prefix); ok {
		return []keyRange{beginning(prefix + strings.ToUpper(rest))}
	}
	ranges := []keyRange{beginning(prefix + strings.ToUpper(text))}
	if strings.HasPrefix(prefix, text) {
		ranges = append(ranges, beginning(text))
	}
	return ranges
}

// nameRanges returns the ranges of keys of the names that an ID shortens. prefix is that of
// the IDs among the names.
func (s shortID) nameRanges(kind, prefix string) []keyRange {
	var ranges []keyRange
	if text, ok := s.begins(); ok {
		ranges = append(ranges, beginning(beginKey(kind, text)))
		if without := bare(text); without != text {
			ranges = append(ranges, beginning(beginKey(kind, without)))
		} else if prefix != "" && strings.HasPrefix(prefix+"_", text) {
			ranges = append(ranges, beginning(kind+">"))
		}
	}
	if text, ok := s.ends(); ok {
		ranges = append(ranges, beginning(endKey(kind, text)))
	}
	return ranges
}

// byName returns the statement that joins a table to the names in a range of keys.
func byName(columns, join string) string {
	return `WITH RECURSIVE segments (n) AS (SELECT events >> 17 FROM index_state WHERE id = 1 UNION ALL SELECT n - 1 FROM segments WHERE n > 0)
	SELECT ` + columns + ` FROM segments CROSS JOIN names ON names.segment = segments.n AND names.key >= ? AND names.key <= ? CROSS JOIN ` + join
}

// errEnough ends a look-up that has found or visited enough rows.
var errEnough = errors.New("look-up has enough rows")

// The passes of a look-up, in order. The first that finds something is the last.
const (
	wholePass = iota // whole names
	shortPass        // shortened names
	partsPass        // MESSAGE/CALL with both parts shortened
	passes
)

// A lookup collects the rows that an ID identifies, each once, in one pass.
type lookup[T any] struct {
	id      string
	pass    int
	found   map[int64]T
	visited int
	more    bool
}

// find runs the passes of a look-up. step visits the rows of a pass.
func find[T any](id string, step func(*lookup[T]) error) (Found[T], error) {
	for pass := range passes {
		l := &lookup[T]{id: id, pass: pass, found: map[int64]T{}}
		if err := step(l); err != nil {
			return Found[T]{}, err
		}
		if len(l.found) > 0 || l.more {
			return l.result(), nil
		}
	}
	return Found[T]{}, nil
}

// fits reports whether the ID identifies one of names in this pass.
func (l *lookup[T]) fits(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return name != "" && (l.pass == wholePass && strings.EqualFold(l.id, name) || l.pass == shortPass && Abbreviates(l.id, name))
	})
}

// nameRanges returns the ranges of keys to search in this pass.
func (l *lookup[T]) nameRanges(kind, prefix string) []keyRange {
	switch l.pass {
	case wholePass:
		return exactNames(kind, l.id)
	case shortPass:
		return parseShort(l.id).nameRanges(kind, prefix)
	}
	return nil
}

// idRanges returns the ranges of the IDs with a prefix to search in this pass.
func (l *lookup[T]) idRanges(prefix string) []keyRange {
	switch l.pass {
	case wholePass:
		return exactID(prefix, l.id)
	case shortPass:
		if text, ok := parseShort(l.id).begins(); ok {
			return idRanges(prefix, text)
		}
	}
	return nil
}

// exactNames returns the ranges of the keys of one name, in any case.
func exactNames(kind, name string) []keyRange {
	key, without := beginKey(kind, name), beginKey(kind, bare(name))
	return []keyRange{{key, key}, {without, without}}
}

// exactID returns the range of one ID with a prefix, in any case.
func exactID(prefix, id string) []keyRange {
	rest, ok := strings.CutPrefix(strings.ToLower(id), prefix+"_")
	if !ok {
		return nil
	}
	id = prefix + "_" + strings.ToUpper(rest)
	return []keyRange{{id, id}}
}

// visit adds a row, if it fits.
func (l *lookup[T]) visit(number int64, value T, fits bool) error {
	if l.visited++; fits {
		l.found[number] = value
	}
	if len(l.found) > MaxFound || l.visited > maxVisited {
		l.more = true
		return errEnough
	}
	return nil
}

// result returns the rows in the order of their numbers.
func (l *lookup[T]) result() Found[T] {
	f := Found[T]{More: l.more}
	for _, n := range slices.Sorted(maps.Keys(l.found)) {
		if len(f.All) < MaxFound {
			f.All = append(f.All, l.found[n])
		}
	}
	return f
}

// search executes a statement for each range and passes the rows to visit.
func (s *Snapshot) search(visit func(*columnReader) error, text string, ranges ...keyRange) error {
	for _, r := range ranges {
		if err := s.each(visit, text, r.from, r.through); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// The statements of FindSessions.
var (
	sessionsByName = byName(qualified("sessions", sessionColumns), "sessions ON sessions.number = names.id")
	sessionsByID   = selection("sessions", sessionColumns) + " WHERE session >= ? AND session <= ?"
	lastSession    = selection("sessions", sessionColumns) + " ORDER BY number DESC LIMIT 1"
)

// qualified returns columns with the name of their table.
func qualified(table string, columns []string) string {
	return table + "." + strings.Join(columns, ", "+table+".")
}

// FindSessions returns the sessions that an ID identifies: their IDs or, of an imported
// session, its name in the program that wrote it. A whole name wins over a shortened one.
// Case does not matter.
func (s *Snapshot) FindSessions(id string) (Found[calls.Session], error) {
	return find(id, func(l *lookup[calls.Session]) error {
		visit := func(c *columnReader) error {
			var row sessionRow
			if err := row.scan(c.row); err != nil {
				return err
			}
			name := row.Origin.Source
			if row.Origin.Kind != events.Imported {
				name = ""
			}
			return l.visit(row.number, row.Session, l.fits(row.ID.String(), name))
		}
		err := s.search(visit, sessionsByID, l.idRanges(domain.SessionID{}.Prefix())...)
		if err == nil {
			err = s.search(visit, sessionsByName, l.nameRanges(sessionNames, "")...)
		}
		return err
	})
}

// LastSession returns the session whose first event is the last one, and whether there is
// a session.
func (s *Snapshot) LastSession() (calls.Session, bool, error) {
	rows, err := s.sessionRows(lastSession)
	if err != nil || len(rows) == 0 {
		return calls.Session{}, false, err
	}
	return rows[0].Session, true, nil
}

// A Turn is one request to the model.
type Turn struct {
	Session domain.SessionID
	Turn    domain.TurnID
	// Event is the first event of the turn; Position and Revision are its own. Those with
	// Last are of the last event, which differs in an import that adds tools to the offer.
	Event                  domain.EventID
	Position, LastPosition events.Position
	Revision, LastRevision events.Revision
	Tools                  int // the number of offered tools
	offer                  int64
	number                 int64 // of the session
}

// turnColumns are the columns of a Turn, in the order of scan.
const turnColumns = `turns.session, turns.turn, turns.event, turns.position, turns.last_position, turns.revision, turns.last_revision,
	(SELECT tools FROM offers WHERE offers.offer = turns.offer), turns.offer, (SELECT number FROM sessions WHERE sessions.session = turns.session)`

// scan reads turnColumns.
func (t *Turn) scan(c *columnReader) error {
	c.text(&t.Session, &t.Turn, &t.Event)
	t.Position, t.LastPosition = c.position(), c.position()
	t.Revision, t.LastRevision = events.Revision(c.integer()), events.Revision(c.integer())
	t.Tools, t.offer, t.number = int(c.integer()), c.integer(), c.integer()
	return c.err
}

// The statements of turns.
var (
	turnsByName    = byName(turnColumns, "turns ON turns.position = names.id")
	turnsByID      = "SELECT " + turnColumns + " FROM turns WHERE turn >= ? AND turn <= ?"
	turnedSessions = "SELECT session FROM sessions WHERE turns > 0 ORDER BY number DESC LIMIT ?"
	turnsOfSession = "SELECT " + turnColumns + " FROM turns WHERE session = ? ORDER BY position DESC LIMIT ?"
)

// FindTurns returns the turns that an ID identifies, their own or that of their first event,
// as FindSessions does, but grouped by session.
func (s *Snapshot) FindTurns(id string) (Found[Turn], error) {
	found, err := find(id, func(l *lookup[Turn]) error {
		visit := func(c *columnReader) error {
			var t Turn
			if err := t.scan(c); err != nil {
				return err
			}
			position, _ := t.Position.Parts()
			return l.visit(int64(position), t, l.fits(t.Turn.String(), t.Event.String()))
		}
		err := s.search(visit, turnsByID, l.idRanges(domain.TurnID{}.Prefix())...)
		if err == nil {
			err = s.search(visit, turnsByName, l.nameRanges(turnNames, domain.EventID{}.Prefix())...)
		}
		return err
	})
	slices.SortStableFunc(found.All, func(a, b Turn) int { return cmp.Compare(a.number, b.number) })
	return found, err
}

// LastTurns returns the last turns, grouped by session, the last one last.
func (s *Snapshot) LastTurns(limit int) (all []Turn, err error) {
	sessions, err := s.strings(turnedSessions, limit)
	for _, session := range sessions {
		if err != nil || len(all) >= limit {
			break
		}
		err = s.each(func(c *columnReader) error {
			all = append(all, Turn{})
			return all[len(all)-1].scan(c)
		}, turnsOfSession, session, limit-len(all))
	}
	slices.Reverse(all)
	return all, err
}

// The statements of FindCalls.
var (
	callsByName        = byName(qualified("calls", callColumns), "calls ON calls.id = names.id")
	callsByMessageName = byName(qualified("calls", callColumns), "messages ON messages.id = names.id CROSS JOIN calls ON calls.message = messages.message AND calls.session = messages.session")
	callsByMessage     = selection("calls", callColumns) + " WHERE message >= ? AND message <= ?"
	callsByCall        = selection("calls", callColumns) + " WHERE call >= ? AND call <= ?"
)

// FindCalls returns the calls that a reply asks for and that an ID identifies: the ID of the
// provider, MESSAGE/CALL, or the event of the settlement. A whole name wins over a
// shortened one, and that over MESSAGE/CALL with both parts shortened. Case does not matter.
func (s *Snapshot) FindCalls(id string) (Found[calls.Call], error) { return s.findCalls(id, false) }

// FindOrphans returns the orphans that an ID identifies, as FindCalls does.
func (s *Snapshot) FindOrphans(id string) (Found[calls.Call], error) { return s.findCalls(id, true) }

// findCalls does the work of FindCalls and FindOrphans.
func (s *Snapshot) findCalls(id string, orphans bool) (Found[calls.Call], error) {
	message, call, two := strings.Cut(id, "/")
	return find(id, func(l *lookup[calls.Call]) error {
		visit := func(c *columnReader) error {
			var row callRow
			if err := row.scan(c.row); err != nil {
				return err
			}
			fits := l.fits(row.Message.String()+"/"+string(row.ID), string(row.ID), row.SettledBy.String()) ||
				l.pass == partsPass && message != "" && call != "" && !orphans && Abbreviates(message, row.Message.String()) && Abbreviates(call, string(row.ID))
			return l.visit(row.id, row.Call, fits && row.Asked.IsZero() == orphans)
		}
		prefix := domain.MessageID{}.Prefix()
		search := []struct {
			text   string
			ranges []keyRange
		}{{callsByName, l.nameRanges(callNames, domain.EventID{}.Prefix())}}
		add := func(text string, ranges ...keyRange) {
			search = append(search, struct {
				text   string
				ranges []keyRange
			}{text, ranges})
		}
		switch {
		case two && l.pass == wholePass:
			add(callsByMessage, exactID(prefix, message)...)
		case two && message == "":
			add(callsByName, exactNames(callNames, call)...)
		case two:
			short := parseShort(message)
			if text, ok := short.begins(); ok {
				add(callsByMessage, idRanges(prefix, text)...)
			}
			if text, ok := short.ends(); ok {
				add(callsByMessageName, beginning(endKey(messageNames, text)))
			}
		case l.pass == shortPass:
			add(callsByMessage, l.idRanges(prefix)...)
			if text, ok := parseShort(id).begins(); ok {
				// The table names has an ID such as toolu_01 without its prefix.
				add(callsByCall, beginning(id), beginning(text), beginning(strings.ToUpper(text)))
			}
		}
		for _, one := range search {
			if err := s.search(visit, one.text, one.ranges...); err != nil {
				return err
			}
		}
		return nil
	})
}

// LastCall returns the call that a reply asks for whose first event is the last one, and
// whether there is one.
func (s *Snapshot) LastCall() (calls.Call, bool, error) {
	all, err := s.Calls(CallQuery{Limit: 1})
	if err != nil || len(all) == 0 {
		return calls.Call{}, false, err
	}
	return all[0], true, nil
}
