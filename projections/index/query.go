package index

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"os"
	"regexp"
	"strings"

	"github.com/settlement-ledger/ledger/events"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// readerPragmas are the settings of a connection that reads.
var readerPragmas = []string{"query_only(1)", "busy_timeout(10000)", "trusted_schema(0)", "temp_store(MEMORY)", "cache_size(-16384)"}

// maxValue is the largest text or value of a statement, in bytes. It bounds the memory of
// one row.
const maxValue = 64 << 20

// maxStatement is the largest statement, in bytes. The time to parse a search grows with the
// square of its length.
const maxStatement = 64 << 10

// A reader is a connection that only reads.
type reader struct {
	db   *sql.DB
	conn *sql.Conn
	path string
}

// open opens the database to read it. It returns an ErrNoIndex if there is none.
func (x *Index) open(ctx context.Context) (r *reader, err error) {
	err = x.withPath(func(path string) (err error) {
		r, err = openReader(ctx, path)
		return err
	})
	return r, err
}

// withPath calls open with the path of the database, again if a rebuild replaced it in
// between.
func (x *Index) withPath(open func(path string) error) error {
	for attempt := 0; ; attempt++ {
		path, err := x.current()
		if err != nil {
			return err
		}
		if err = open(path); err == nil {
			return nil
		}
		_, missing := os.Stat(path)
		if missing != nil && attempt < 3 {
			continue
		}
		if missing != nil {
			return fmt.Errorf("%w at %s: %w", ErrNoIndex, x.Path(), missing)
		}
		return err
	}
}

// openReader opens the file at path to read it.
func openReader(ctx context.Context, path string) (*reader, error) {
	db, err := sql.Open("sqlite", dsn(path, readerPragmas))
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err == nil {
		_, err = sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_ATTACHED, 0)
	}
	if err == nil {
		_, err = sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_LENGTH, maxValue)
	}
	if err == nil {
		_, err = sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_SQL_LENGTH, maxStatement)
	}
	if err != nil {
		return nil, errors.Join(classified(err), db.Close())
	}
	return &reader{db, conn, path}, nil
}

// close closes the connection.
func (r *reader) close() error { return errors.Join(r.conn.Close(), r.db.Close()) }

// progress reads the row of index_state.
func (r *reader) progress(ctx context.Context) (p progress, err error) {
	var version int64
	if err := r.conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return p, classified(err)
	}
	if version != schemaVersion {
		p.schema = version
		return p, otherSchema(version)
	}
	rows, err := r.conn.QueryContext(ctx, readProgress)
	if err != nil {
		return p, classified(err)
	}
	defer rows.Close()
	for row, err := range (&Rows{rows: rows}).All() {
		if err != nil {
			return p, classified(err)
		}
		values := make([]driver.Value, len(row))
		for i, v := range row {
			values[i] = v
		}
		return p, p.scan(values)
	}
	return p, fmt.Errorf("%w: it has no progress", ErrDamagedIndex)
}

// Rows is the result of a statement. The caller closes it.
type Rows struct {
	// Columns are the names of the columns.
	Columns []string
	rows    *sql.Rows
	close   func() error
}

// All yields the rows in order. A value is an int64, a float64, a string, a []byte or nil;
// the slice belongs to the loop and is valid until the next row. An error comes once, last.
func (r *Rows) All() iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		columns, err := r.rows.Columns()
		if err != nil {
			yield(nil, refused(err))
			return
		}
		row, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		for r.rows.Next() {
			if err := r.rows.Scan(to...); err != nil {
				yield(nil, refused(err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := r.rows.Err(); err != nil {
			yield(nil, refused(err))
		}
	}
}

// Close releases the statement and the database.
func (r *Rows) Close() error { return r.close() }

// Query runs one statement that only reads. A statement that writes, attaches another
// database, is not valid or has more than 64 KiB is an ErrStatement. The end of ctx ends the statement. The rows
// are those of one moment, also while another process writes. Query does not catch up.
func (x *Index) Query(ctx context.Context, statement string) (*Rows, error) {
	r, err := x.open(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := r.conn.QueryContext(ctx, statement)
	if err != nil {
		return nil, errors.Join(r.withoutText(ctx, statement, refused(err)), r.close())
	}
	columns, err := rows.Columns()
	if err != nil {
		return nil, errors.Join(refused(err), rows.Close(), r.close())
	}
	return &Rows{columns, rows, func() error { return errors.Join(rows.Close(), r.close()) }}, nil
}

// textWords matches the names of the tables of the full text in a statement.
var textWords = regexp.MustCompile(`(?i)\b(` + strings.Join(textTables, "|") + `)\b`)

// withoutText wraps an ErrStatement in ErrNoText if the index has no full text and the
// statement names a table of it.
func (r *reader) withoutText(ctx context.Context, statement string, refused error) error {
	if !errors.Is(refused, ErrStatement) || !textWords.MatchString(statement) {
		return refused
	}
	if p, err := r.progress(ctx); err != nil || p.texts {
		return refused
	}
	return fmt.Errorf("%w: %w", ErrNoText, refused)
}

// The states of an index.
const (
	Absent  = "absent"  // there is none
	Current = "current" // it has every event of the log
	Behind  = "behind"  // CatchUp reads further events
	Unfit   = "unfit"   // CatchUp rebuilds it
)

// A Status compares an index with its log.
type Status struct {
	State  string // one of the constants above
	Reason string // why it is unfit; empty otherwise
	Path   string // of the symbolic link to the database
	Schema int64  // the version of its schema
	Bytes  int64  // the size of the database and its log
	Text   bool   // it has full text
	Events int64  // the events that it has read
	// Position and Event are those of its last event, Time is its time. Head is the position
	// of the last event of the log, or zero if the store does not know it.
	Position events.Position
	Event    string
	Time     string
	Head     events.Position
}

// Status compares the index with its log. It reads at most three events of the log
// and changes nothing. It returns an error if the log cannot be read.
func (x *Index) Status(ctx context.Context, l *events.Ledger) (Status, error) {
	s := Status{State: Absent, Path: x.Path()}
	head, _, err := l.Head(ctx)
	if err != nil {
		return s, err
	}
	s.Head = head.Position
	r, err := x.open(ctx)
	if errors.Is(err, ErrNoIndex) {
		return s, nil
	}
	if err == nil {
		for _, suffix := range []string{"", "-wal"} {
			if info, err := os.Stat(r.path + suffix); err == nil {
				s.Bytes += info.Size()
			}
		}
		var p progress
		if p, err = r.progress(ctx); err == nil {
			s.Schema, s.Text, s.Events, s.Position, s.Event, s.Time = p.schema, p.texts, p.events, p.last.Position, p.last.Event.String(), p.time
			err = p.check(ctx, l)
		}
		if err == nil {
			s.State, err = stateOf(ctx, l, p.last.Position)
		}
		err = errors.Join(err, r.close())
	}
	switch {
	case errors.Is(err, errUnfit), errors.Is(err, ErrDamagedIndex):
		s.State, s.Reason = Unfit, err.Error()
	case err != nil:
		return s, err
	}
	return s, nil
}

// stateOf returns Behind if the log has an event after a position, and Current otherwise.
func stateOf(ctx context.Context, l *events.Ledger, at events.Position) (string, error) {
	for _, err := range l.Headers(ctx, events.Query{After: at}) {
		return Behind, err
	}
	return Current, nil
}
