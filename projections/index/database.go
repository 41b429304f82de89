package index

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"syscall"

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

// codeOf returns the extended result code of an error of SQLite.
func codeOf(err error) (code int, ok bool) {
	if failed, ok := errors.AsType[*sqliteError](err); ok {
		return failed.code, true
	}
	if failed, ok := errors.AsType[*sqlite.Error](err); ok {
		return failed.Code(), true
	}
	return 0, false
}

// classified wraps an error of SQLite, of a statement of this package, in ErrDamagedIndex
// if only damage of the database explains it. Such a statement is valid for an intact
// index and never violates a constraint of it.
func classified(err error) error {
	code, ok := codeOf(err)
	if !ok {
		return err
	}
	switch code & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_TOOBIG:
		return fmt.Errorf("%w: %w", ErrDamagedIndex, err)
	}
	if code == sqlite3.SQLITE_IOERR_SHORT_READ {
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
	code, ok := codeOf(err)
	if !ok {
		return err
	}
	switch code {
	case sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP:
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	switch code & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	return err
}

// refused wraps an error of SQLite, of a statement of a caller, in the error of this
// package that fits.
func refused(err error) error {
	code, ok := codeOf(err)
	if !ok {
		return err
	}
	switch code & 0xff {
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
var writerPragmas = []string{"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)", "cache_size(-16384)", "temp_store(MEMORY)"}

// bulkPragmas are the settings of a connection that fills a new database, which no link
// names until it is complete. SQLite keeps no journal and syncs nothing, so an error or a
// kill leaves a file that is of no use. Sorting uses the cache, and then temporary files.
// Pages of 8 KiB take a tenth less time and space than the default of 4 KiB.
var bulkPragmas = []string{"page_size(8192)", "journal_mode(OFF)", "synchronous(OFF)", "locking_mode(EXCLUSIVE)", "cache_size(-16384)", "temp_store(FILE)"}

// dsn returns the name under which the driver opens a file to read it, with pragmas.
func dsn(path string, pragmas []string) string {
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: url.Values{"mode": {"ro"}, "_pragma": pragmas}.Encode()}).String()
}
