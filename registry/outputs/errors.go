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

// A Pruned is the answer for an output whose bytes were removed on purpose. It
// is an ErrPruned. What was known of the bytes stays.
type PrunedError struct {
	Retained domain.Retained
	Policy   string
	At       time.Time // in UTC
}

// Error says when the output was pruned and by which policy, and its digest.
func (p *PrunedError) Error() string {
	return fmt.Sprintf("pruned at %s by policy %q: it had %d bytes of %s with SHA-256 %s",
		p.At.Format(time.RFC3339), p.Policy, p.Retained.Bytes, p.Retained.MIME, p.Retained.SHA256)
}

// Is reports whether target is ErrPruned.
func (p *PrunedError) Is(target error) bool { return target == ErrPruned }

// damaged returns an ErrDamaged that names the offset from which the bytes
// cannot be had.
func damaged(offset int64, why string) error {
	return fmt.Errorf("at byte %d: %w: %s", offset, ErrDamaged, why)
}

// A sealed error keeps what broke for whoever unwraps it, and shows none of it
// but the name of the system's error: the text of what broke may hold the path
// of a managed file, which no model may read.
type redactedError struct {
	text  string
	cause error
}

func (s *redactedError) Error() string { return s.text }
func (s *redactedError) Unwrap() error { return s.cause }

// seal hides the text of an error of the database or of the disk.
func redact(err error) error {
	switch {
	case err == nil:
		return nil
	case pebble.IsCorruptionError(err):
		return &redactedError{"checksum or structure of the database is wrong", err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return &redactedError{errno.Error(), err}
	}
	return &redactedError{"the output database failed", err}
}

// inUse reports whether err, of taking the lock, means that somebody holds it:
// all that is not about the lock file itself.
func inUse(err error) bool {
	_, aboutFile := errors.AsType[*fs.PathError](err)
	return !aboutFile
}
