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

// A sqlite is a table of events in SQLite, as its users write an event store:
// in WAL mode with synchronous=FULL, where a commit is on the disk, and with the
// length of the stream checked in the transaction of each append. Writers take
// turns at one connection with prepared statements, which is faster than to have
// them contend for the database's lock.
type sqlite struct {
	sync.Mutex
	db                                 *sql.DB
	begin, length, insert, commit, end *sql.Stmt
}

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

// add inserts an event if the stream of its writer has the length before it.
func (s *sqlite) add(p bench.Pending) error {
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

// addAll adds events in one transaction.
func (s *sqlite) addAll(batch []bench.Pending) error {
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

// Append adds an event in a transaction of its own.
func (s *sqlite) Append(_ context.Context, writer, n int, event []byte) error {
	s.Lock()
	defer s.Unlock()
	return s.addAll([]bench.Pending{{Writer: writer, N: n, Event: event}})
}

// Close closes the database.
func (s *sqlite) Close() error { return s.db.Close() }

func openSQLite(ctx context.Context, g *bench.Ground, _ int) (bench.Appender, error) {
	return newSQLite(ctx, g.Dir)
}

// A sqliteGroup has one goroutine that adds in one transaction all that wait.
type sqliteGroup struct {
	*bench.Group
	db *sqlite
}

func openSQLiteGrouped(ctx context.Context, g *bench.Ground, writers int) (bench.Appender, error) {
	s, err := newSQLite(ctx, g.Dir)
	if err != nil {
		return nil, err
	}
	return &sqliteGroup{bench.NewGroup(writers, s.addAll), s}, nil
}

// Close ends the goroutine and closes the database.
func (s *sqliteGroup) Close() error { return errors.Join(s.Group.Close(), s.db.Close()) }

// scanSQLite sets a contestant up that selects the columns of the headers of a
// history in order.
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

// fill copies a history into the table.
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

// eachEntry calls do with runs of the entries of a history, in order.
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
