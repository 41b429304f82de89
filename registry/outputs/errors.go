package outputs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/domain"
)

// The errors of this package. Callers match them with errors.Is.
//
// ErrNotKept, ErrExists: Keep stored no blob. ErrNotFound, ErrPruned, ErrDamaged: a
// read of a blob. ErrFiles, ErrInUse, ErrFormat: opening a store. ErrBroken,
// ErrReadOnly: a write. ErrClosed: any operation after Close of the reader or the
// store.
var (
	ErrNotKept  = errors.New("output not kept")
	ErrExists   = errors.New("output is kept already")
	ErrNotFound = errors.New("no such output")
	ErrPruned   = errors.New("output was pruned")
	ErrDamaged  = errors.New("output is damaged")
	ErrFiles    = errors.New("output store is damaged")
	ErrInUse    = errors.New("output store is in use by another process")
	ErrFormat   = errors.New("output store is of another format")
	ErrBroken   = errors.New("output store stopped writing")
	ErrReadOnly = errors.New("output store is open to read only")
	ErrClosed   = errors.New("output or its store is closed")
)

// A PrunedError is returned for a blob whose bytes Prune deleted. It has the metadata
// of the blob, and errors.Is reports that it is an [ErrPruned].
type PrunedError struct {
	Retained domain.Retained
	Policy   string    // name of the policy that pruned it
	At       time.Time // in UTC
}

// Error names the time, the policy and the digest.
func (p *PrunedError) Error() string {
	return fmt.Sprintf("pruned at %s by policy %q: it had %d bytes of %s with SHA-256 %s",
		p.At.Format(time.RFC3339), p.Policy, p.Retained.Bytes, p.Retained.MIME, p.Retained.SHA256)
}

// Is reports whether target is ErrPruned.
func (p *PrunedError) Is(target error) bool { return target == ErrPruned }

// damaged returns an ErrDamaged that names the offset of the first unreadable byte.
func damaged(offset int64, why string) error {
	return fmt.Errorf("at byte %d: %w: %s", offset, ErrDamaged, why)
}

// A redactedError wraps an error of the database and hides the text of that error,
// because the text may contain the path of a file and a model may read it. Its own text
// is a general reason or the text of the system's error.
type redactedError struct {
	text  string
	cause error
}

// Error returns the text without paths.
func (s *redactedError) Error() string { return s.text }

// Unwrap returns the hidden error.
func (s *redactedError) Unwrap() error { return s.cause }

// redact returns err with its text hidden, so that the text shows no path. Callers
// can still match err with errors.Is. The error of an ended context and nil are
// returned unchanged.
func redact(err error) error {
	switch {
	case err == nil:
		return nil
	case pebble.IsCorruptionError(err):
		return &redactedError{"checksum or structure of the database is damaged", err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return &redactedError{errno.Error(), err}
	}
	return &redactedError{"the output database failed", err}
}

// inUse reports whether err, an error of locking a folder, means that another process
// holds the lock. An *fs.PathError does not: the lock file could not be created or
// opened. Any other error means that the lock is held.
func inUse(err error) bool {
	_, aboutFile := errors.AsType[*fs.PathError](err)
	return !aboutFile
}
