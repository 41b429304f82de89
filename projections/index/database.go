package index

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"syscall"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The errors of an index. Callers match them with errors.Is.
var (
	// ErrNoIndex: the folder has no index.
	ErrNoIndex = errors.New("there is no index")
	// ErrStatement: SQLite refuses a statement, because it is not valid or does not only
	// read.
	ErrStatement = errors.New("statement is refused")
	// ErrUnwritable: the folder of the index cannot be written, or its disk is full.
	ErrUnwritable = errors.New("index cannot be written")
	// ErrNoText: a statement reads a table of the full text, and the index has no full text.
	ErrNoText = errors.New("index has no full text")
	// ErrDamagedIndex: SQLite reports damage of the database, or the file is no database.
	ErrDamagedIndex = errors.New("index is damaged")
)

// classified wraps an error of SQLite, of a statement of this package, in ErrDamagedIndex
// if only damage of the database explains it. Such a statement is valid for an intact
// index and never violates a constraint of it.
func classified(err error) error {
	failed, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch failed.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_TOOBIG:
		return fmt.Errorf("%w: %w", ErrDamagedIndex, err)
	}
	if failed.Code() == sqlite3.SQLITE_IOERR_SHORT_READ {
		return fmt.Errorf("%w: %w", ErrDamagedIndex, err)
	}
	return err
}

// unwritable wraps an error in ErrUnwritable if it means that the folder or the disk takes
// no more bytes.
func unwritable(err error) error {
	for _, cause := range []error{fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR, syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%w: %w", ErrUnwritable, err)
		}
	}
	failed, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch failed.Code() {
	case sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP:
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	switch failed.Code() & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	return err
}

// refused wraps an error of SQLite, of a statement of a caller, in the error of this
// package that fits.
func refused(err error) error {
	failed, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch failed.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT:
		return fmt.Errorf("%w: %w", ErrDamagedIndex, err)
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PERM:
		return err
	}
	return fmt.Errorf("%w: %w", ErrStatement, err)
}

// writerPragmas are the settings of a connection that writes. NORMAL syncs the log of
// SQLite before a checkpoint only: a power cut may lose the last batches, and never
// leaves half of one. The cache is 16 MiB.
var writerPragmas = []string{"journal_mode(WAL)", "synchronous(NORMAL)", "cache_size(-16384)", "busy_timeout(10000)", "temp_store(MEMORY)"}

// bulkPragmas are the settings of a connection that fills a new database, which no link
// names until it is complete. SQLite keeps no journal and syncs nothing, so an error or a
// kill leaves a file that is of no use. Sorting uses the cache, and then temporary files.
// Pages of 8 KiB take a tenth less time and space than the default of 4 KiB.
var bulkPragmas = []string{"page_size(8192)", "journal_mode(OFF)", "synchronous(OFF)", "locking_mode(EXCLUSIVE)", "cache_size(-16384)", "temp_store(FILE)"}

// dsn returns the name under which the driver opens a file with pragmas.
func dsn(path, mode string, pragmas []string) string {
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: url.Values{"mode": {mode}, "_pragma": pragmas}.Encode()}).String()
}

// A database is a connection. One goroutine uses it. It talks to the driver
// without database/sql, which would cost as much as SQLite itself for small rows.
type database struct {
	conn     driver.Conn
	prepared map[string]driver.Stmt
	args     []driver.NamedValue // of exec and query, reused
}

// connect opens the file at path, with pragmas. The mode is ro, rwc or memory.
func connect(path, mode string, pragmas []string) (*database, error) {
	conn, err := (&sqlite.Driver{}).Open(dsn(path, mode, pragmas))
	if err != nil {
		return nil, classified(err)
	}
	return &database{conn: conn, prepared: map[string]driver.Stmt{}}, nil
}

// close closes the connection. The last one to close copies the log of SQLite into the
// database.
func (d *database) close() error {
	var errs []error
	for _, s := range d.prepared {
		errs = append(errs, s.Close())
	}
	return classified(errors.Join(append(errs, d.conn.Close())...))
}

// script executes SQL that is not prepared and has no arguments.
func (d *database) script(text string) error {
	_, err := d.conn.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
	return classified(err)
}

// statement returns the prepared statement of a text.
func (d *database) statement(text string) (driver.Stmt, error) {
	if s, ok := d.prepared[text]; ok {
		return s, nil
	}
	s, err := d.conn.Prepare(text)
	if err != nil {
		return nil, classified(err)
	}
	d.prepared[text] = s
	return s, nil
}

// bound returns arguments as the driver takes them. The slice is valid until the next
// call.
func (d *database) bound(args []any) []driver.NamedValue {
	d.args = d.args[:0]
	for i, a := range args {
		d.args = append(d.args, driver.NamedValue{Ordinal: i + 1, Value: column(a)})
	}
	return d.args
}

// exec executes a statement and returns the number of changed rows. Absent values become
// null, as function column says.
func (d *database) exec(text string, args ...any) (int64, error) {
	s, err := d.statement(text)
	if err != nil {
		return 0, err
	}
	// Without a cancellable context the driver starts no goroutine.
	result, err := s.(driver.StmtExecContext).ExecContext(context.Background(), d.bound(args))
	if err != nil {
		return 0, classified(err)
	}
	return result.RowsAffected()
}

// query executes a statement and passes each row to visit, which keeps no reference to
// it.
func (d *database) query(visit func([]driver.Value) error, text string, args ...any) error {
	s, err := d.statement(text)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), d.bound(args))
	if err != nil {
		return classified(err)
	}
	row := make([]driver.Value, len(rows.Columns()))
	for {
		if err = rows.Next(row); err == nil {
			err = visit(row)
		}
		if err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return classified(errors.Join(err, rows.Close()))
}

// number returns the first column of the first row as an integer, or 0 if there is no row
// or the column is null.
func (d *database) number(text string, args ...any) (n int64, err error) {
	err = d.query(func(row []driver.Value) error {
		n, _ = row[0].(int64)
		return nil
	}, text, args...)
	return n, err
}

// timeLayout is the form of a time in the index: UTC with microseconds.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// column returns a value as SQLite stores it. The empty text, a zero time, a zero ID and a
// zero position become null, a bool 0 or 1, a position its first part, and a value with a
// String method that text.
func column(v any) driver.Value {
	switch v := v.(type) {
	case nil, int64:
		return v
	case string:
		if v == "" {
			return nil
		}
		return v
	case int:
		return int64(v)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return v.UTC().Format(timeLayout)
	case events.Position:
		if v.IsZero() {
			return nil
		}
		commit, _ := v.Parts()
		return int64(commit)
	case events.Revision:
		if v == 0 {
			return nil
		}
		return int64(v)
	case fmt.Stringer:
		return column(v.String())
	}
	panic(fmt.Sprintf("index: %T has no column type", v))
}
