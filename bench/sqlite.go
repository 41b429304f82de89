package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// A sqlite is an event store as users of SQLite write it: one table of events, WAL
// mode and synchronous=FULL, where a commit returns when it is on the disk. Each
// append checks the length of its stream in its transaction. The writers share one
// connection with prepared statements, one after the other. That is faster than
// several connections that contend for the lock of the database.
type sqlite struct {
	sync.Mutex                                 // held by Append for a transaction
	db                                 *sql.DB // owned; has one connection
	begin, length, insert, commit, end *sql.Stmt
}

// schema creates the table. The columns other than data are the fields of a header.
const schema = `CREATE TABLE events (
	position INTEGER PRIMARY KEY,
	stream   TEXT NOT NULL,
	revision INTEGER NOT NULL,
	kind     TEXT NOT NULL,
	version  INTEGER NOT NULL,
	id       BLOB NOT NULL,
	time     INTEGER NOT NULL,
	size     INTEGER NOT NULL,
	data     BLOB NOT NULL,
	UNIQUE (stream, revision)
)`

// newSQLite creates the database in dir and prepares the statements. The caller must
// close it. After an error the database is closed.
func newSQLite(ctx context.Context, dir string) (s *sqlite, err error) {
	s = &sqlite{}
	s.db, err = sql.Open("sqlite3", "file:"+filepath.Join(dir, "events.db")+"?_journal_mode=WAL&_synchronous=FULL")
	if err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(1)
	if _, err := s.db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	for text, statement := range map[string]**sql.Stmt{
		"BEGIN IMMEDIATE": &s.begin,
		"SELECT coalesce(max(revision), 0) FROM events WHERE stream = ?":                                             &s.length,
		"INSERT INTO events (stream, revision, kind, version, id, time, size, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)": &s.insert,
		"COMMIT":   &s.commit,
		"ROLLBACK": &s.end,
	} {
		if *statement, err = s.db.PrepareContext(ctx, text); err != nil {
			return nil, errors.Join(err, s.db.Close())
		}
	}
	return s, nil
}

// add inserts an event in the open transaction. It returns an error unless the stream of
// the writer has exactly p.N-1 events. The caller has begun a transaction and rolls it
// back after an error.
func (s *sqlite) add(p bench.PendingEvent) error {
	stream := fmt.Sprintf("session-%026d", p.Writer)
	var length int
	if err := s.length.QueryRow(stream).Scan(&length); err != nil {
		return err
	}
	if length != p.N-1 {
		return fmt.Errorf("stream %s has length %d, not %d", stream, length, p.N-1)
	}
	id := [16]byte{byte(p.Writer), byte(p.Writer >> 8), byte(p.N), byte(p.N >> 8), byte(p.N >> 16), byte(p.N >> 24)}
	_, err := s.insert.Exec(stream, p.N, "CallSettled", 1, id[:], time.Now().UnixMicro(), len(p.Event), p.Event)
	return err
}

// addAll inserts events in one transaction and returns when it is on the disk. After
// an error of add it rolls the transaction back. Calls must not overlap: the
// connection has one transaction at a time.
func (s *sqlite) addAll(batch []bench.PendingEvent) error {
	if _, err := s.begin.Exec(); err != nil {
		return err
	}
	for _, p := range batch {
		if err := s.add(p); err != nil {
			_, again := s.end.Exec()
			return errors.Join(err, again)
		}
	}
	_, err := s.commit.Exec()
	return err
}

// Append inserts one event in a transaction of its own. Several goroutines may append
// at once; the mutex runs them one after the other.
func (s *sqlite) Append(_ context.Context, writer, n int, event []byte) error {
	s.Lock()
	defer s.Unlock()
	return s.addAll([]bench.PendingEvent{{Writer: writer, N: n, Event: event}})
}

// Close closes the database with its statements. No append may be running.
func (s *sqlite) Close() error { return s.db.Close() }

// openSQLite returns a SQLite with one transaction for each append.
func openSQLite(ctx context.Context, g *bench.Ground, _ int) (bench.Appender, error) {
	return newSQLite(ctx, g.Dir)
}

// A sqliteGroup adds group commit to SQLite, as a user could write it: the committer
// of the GroupCommitter inserts all waiting events in one transaction.
type sqliteGroup struct {
	*bench.GroupCommitter         // calls addAll of db, from one goroutine
	db                    *sqlite // owned
}

// openSQLiteGrouped returns a SQLite with group commit for the given number of
// writers.
func openSQLiteGrouped(ctx context.Context, g *bench.Ground, writers int) (bench.Appender, error) {
	s, err := newSQLite(ctx, g.Dir)
	if err != nil {
		return nil, err
	}
	return &sqliteGroup{bench.NewGroupCommitter(writers, s.addAll), s}, nil
}

// Close stops the committer and closes the database. No append may be running.
func (s *sqliteGroup) Close() error { return errors.Join(s.GroupCommitter.Close(), s.db.Close()) }

// scanSQLite returns a contestant that selects the header columns of a history,
// ordered by position. Filling the table is not measured.
func scanSQLite(ctx context.Context, g *bench.Ground) (bench.Rig, error) {
	s, err := newSQLite(ctx, g.Dir)
	if err != nil {
		return nil, err
	}
	if err := s.fill(ctx, g); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return bench.NewRig(func(ctx context.Context) (bench.Sample, error) {
		begun := time.Now()
		n, err := s.headers(ctx)
		if err != nil {
			return nil, err
		}
		return bench.RateOf(n, time.Since(begun))
	}, s.Close), nil
}

// fill copies a history into the table, 10,000 events in each transaction. The
// positions are the ones that SQLite assigns.
func (s *sqlite) fill(ctx context.Context, g *bench.Ground) error {
	return eachEntry(ctx, g, 10_000, func(entries []events.Entry) error {
		if _, err := s.begin.Exec(); err != nil {
			return err
		}
		for _, e := range entries {
			id := e.ID.Bytes()
			_, err := s.insert.Exec(string(e.Stream), int64(e.Revision), e.Kind, e.Version, id[:], e.Time.UnixMicro(), len(e.Data)+len(e.Metadata), e.Data)
			if err != nil {
				return err
			}
		}
		_, err := s.commit.Exec()
		return err
	})
}

// headers selects the header columns of all events in order and returns the number of
// rows. It scans every column into a variable, as a reader of headers would.
func (s *sqlite) headers(ctx context.Context) (n int, err error) {
	rows, err := s.db.QueryContext(ctx, "SELECT position, stream, revision, kind, version, id, time, size FROM events ORDER BY position")
	if err != nil {
		return 0, err
	}
	var position, revision, version, micros, size int64
	var stream, kind string
	var id sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&position, &stream, &revision, &kind, &version, &id, &micros, &size); err != nil {
			return n, errors.Join(err, rows.Close())
		}
		n++
	}
	return n, errors.Join(rows.Err(), rows.Close())
}

// eachEntry calls the function do with the entries of a history in order, run entries at
// a time; the last call may have fewer. eachEntry reuses the slice after do returns. An
// error of do ends the loop; eachEntry returns it, joined with the error of closing the
// store.
func eachEntry(ctx context.Context, g *bench.Ground, run int, do func([]events.Entry) error) error {
	dir, err := g.History(ctx)
	if err != nil {
		return err
	}
	store, err := embedded.Open(ctx, dir, embedded.Config{})
	if err != nil {
		return err
	}
	entries := make([]events.Entry, 0, run)
	for e, read := range store.ReadAll(ctx, events.Position{}) {
		if err = read; err != nil {
			break
		}
		if entries = append(entries, e); len(entries) == run {
			if err = do(entries); err != nil {
				break
			}
			entries = entries[:0]
		}
	}
	if err == nil && len(entries) > 0 {
		err = do(entries)
	}
	return errors.Join(err, store.Close())
}
