package index

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// A Snapshot answers questions from the rows of one moment, also while another process
// writes. Each method reads only the rows that it returns, and some for each segment of the
// log; [Snapshot.Calls], [Snapshot.Sessions] and [Snapshot.Layers] can also be asked for
// everything. A Snapshot belongs to one goroutine. The caller closes it.
type Snapshot struct {
	*database
	ctx      context.Context
	progress progress
}

// Snapshot opens a Snapshot of the index. It does not catch up. The end of ctx ends the
// reads of long lists. It returns an ErrNoIndex if there is no index.
func (x *Index) Snapshot(ctx context.Context) (s *Snapshot, err error) {
	err = x.withPath(func(path string) error {
		d, err := connect(path, readOnly, readerPragmas)
		if err != nil {
			return err
		}
		s = &Snapshot{database: d, ctx: ctx}
		if err = d.script("BEGIN"); err == nil {
			err = d.query(s.progress.scan, readProgress)
		}
		if err == nil && s.progress.schema != schemaVersion {
			err = fmt.Errorf("%w: its schema has version %d, and this program reads version %d", ErrDamagedIndex, s.progress.schema, schemaVersion)
		}
		if err != nil {
			return errors.Join(err, d.close())
		}
		return nil
	})
	return s, err
}

// maxMemoryPages bounds an index in memory, in pages of 4 KiB.
const maxMemoryPages = 128 << 10

// InMemory fills an index in memory, from the beginning of the log, and returns a Snapshot
// of it, for a machine without a folder that can be written. It returns an ErrUnwritable if
// the index is larger than 512 MiB. Report is as in CatchUp.
func InMemory(ctx context.Context, l *events.Ledger, report func(Progress)) (*Snapshot, error) {
	d, err := connect(":memory:", inMemory, []string{fmt.Sprintf("max_page_count(%d)", maxMemoryPages), "temp_store(MEMORY)"})
	if err != nil {
		return nil, err
	}
	f, err := newBulkFiller(d, maxBatchEvents, true)
	if err == nil {
		err = f.read(ctx, l, building{report: report, reason: "no folder for it can be written"})
	}
	if err == nil {
		err = f.finish()
	}
	if err != nil {
		return nil, unwritable(errors.Join(err, d.close()))
	}
	return &Snapshot{database: d, ctx: ctx, progress: f.progress}, nil
}

// Close ends the Snapshot.
func (s *Snapshot) Close() error { return s.close() }

// each executes a statement and passes the columns of each row to visit. It returns the
// cause of the context of the Snapshot if that ends.
func (s *Snapshot) each(visit func(*columnReader) error, text string, args ...any) error {
	n := 0
	return s.query(func(row []driver.Value) error {
		if n++; n%1024 == 0 && s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		c := &columnReader{row: row}
		if err := visit(c); err != nil {
			return err
		}
		return c.err
	}, text, args...)
}

// callRows returns the calls of a statement that selects callColumns.
func (s *Snapshot) callRows(text string, args ...any) (rows []callRow, err error) {
	err = s.each(func(c *columnReader) error {
		rows = append(rows, callRow{})
		return rows[len(rows)-1].scan(c.row)
	}, text, args...)
	return rows, err
}

// sessionRows returns the sessions of a statement that selects sessionColumns.
func (s *Snapshot) sessionRows(text string, args ...any) (rows []sessionRow, err error) {
	err = s.each(func(c *columnReader) error {
		rows = append(rows, sessionRow{})
		return rows[len(rows)-1].scan(c.row)
	}, text, args...)
	return rows, err
}

// The statements that read one row, and names.
var (
	readOneCall    = selection("calls", callColumns) + " WHERE message = ? AND call = ? AND session = ?"
	readTextPlace  = "SELECT revision FROM recorded_texts WHERE session = ? AND digest = ?"
	readAgents     = namesOf("sessions", "agent", "number", "number > 0")
	readTools      = namesOf("calls", "tool", "id", "asked_time IS NOT NULL")
	readRegistered = namesOf("registered_tools", "tool", "0", "registration IS NOT NULL")
	readAgent      = "SELECT 1 FROM sessions WHERE agent = ? LIMIT 1"
	readTool       = "SELECT 1 FROM calls WHERE tool = ? AND asked_time IS NOT NULL LIMIT 1"
	readApprovals  = "SELECT event, permission, session, agent, location, action, resource, expires, person, time FROM approvals WHERE ended_position IS NULL ORDER BY position"
)

// namesOf returns the statement that selects the distinct values of an indexed column, in
// the order of the first row of each that meets a condition. It seeks once for each value.
func namesOf(table, column, order, condition string) string {
	return fmt.Sprintf(`WITH RECURSIVE distinct_names (name) AS (
	SELECT min(%[2]s) FROM %[1]s UNION ALL SELECT (SELECT min(%[2]s) FROM %[1]s WHERE %[2]s > name) FROM distinct_names WHERE name IS NOT NULL)
	SELECT name FROM (SELECT name, (SELECT %[3]s FROM %[1]s WHERE %[2]s = name AND %[4]s LIMIT 1) AS place FROM distinct_names WHERE name IS NOT NULL)
	WHERE place IS NOT NULL ORDER BY place, name`, table, column, order, condition)
}

// strings returns the first column of a statement.
func (s *Snapshot) strings(text string, args ...any) (all []string, err error) {
	err = s.each(func(c *columnReader) error {
		all = append(all, c.string())
		return nil
	}, text, args...)
	return all, err
}

// Agents returns the agents of sessions, in the order of their first sessions.
func (s *Snapshot) Agents() ([]string, error) { return s.strings(readAgents) }

// Tools returns the tools that calls of models name, in the order of the first call.
func (s *Snapshot) Tools() ([]string, error) { return s.strings(readTools) }

// RegisteredTools returns the names of all tools that were ever registered, sorted.
func (s *Snapshot) RegisteredTools() ([]string, error) { return s.strings(readRegistered) }

// HasAgent reports whether a session has an agent.
func (s *Snapshot) HasAgent(agent string) (bool, error) {
	n, err := s.number(readAgent, agent)
	return n == 1, err
}

// HasTool reports whether a call of a model names a tool.
func (s *Snapshot) HasTool(tool string) (bool, error) {
	n, err := s.number(readTool, tool)
	return n == 1, err
}

// Call returns the call with a key, an orphan too, and whether the log has an event of it.
func (s *Snapshot) Call(key calls.Key) (calls.Call, bool, error) {
	rows, err := s.callRows(readOneCall, key.Message, string(key.Call), key.Session)
	if err != nil || len(rows) == 0 {
		return calls.Call{}, false, err
	}
	return rows[0].Call, true, nil
}

// TextPlace returns the revision of the first event of a session that records the text with a
// digest, or 0 if there is none.
func (s *Snapshot) TextPlace(session domain.SessionID, digest string) (events.Revision, error) {
	n, err := s.number(readTextPlace, session, digest)
	return events.Revision(n), err
}

// Approvals returns the saved approvals that no later event ends, in the order of the log:
// the events, with their ID, time and correlation.
func (s *Snapshot) Approvals() (all []events.Envelope, err error) {
	err = s.each(func(c *columnReader) error {
		var v events.Envelope
		var e events.ApprovalSaved
		c.text(&v.ID, &e.Permission, &v.Correlation)
		e.Agent, e.Location, e.Action, e.Resource = domain.AgentID(c.string()), c.string(), c.string(), c.string()
		e.Expires, e.Person, v.Time = c.time(), c.string(), c.time()
		v.Event = e
		all = append(all, v)
		return nil
	}, readApprovals)
	return all, err
}
