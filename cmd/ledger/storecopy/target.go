package storecopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A Target is a store that takes the records of a source in their order. It compares them
// with the records that the store has, and appends those behind. One goroutine uses it, and
// calls Close.
type Target struct {
	name  string // of the store, in errors
	store *stores.Store
	next  func() (events.Entry, error, bool)
	stop  func()
	more  bool // the store has records that were not compared yet
	batch batch
}

// NewTarget returns the Target of an open store, whose address is name.
func NewTarget(ctx context.Context, name string, s *stores.Store) *Target {
	next, stop := iter.Pull2(events.Lend(ctx, s.Log, events.Query{}))
	return &Target{name: name, store: s, next: next, stop: stop, more: true, batch: batch{to: s.Log}}
}

// Close ends the reading of the store.
func (t *Target) Close() { t.stop() }

// Held compares the next record of the source with the next one of the store. It returns false
// after the last record of the store, and a conflict fault if the two differ. The argument
// from says where the record of the source is, such as "from position 7".
func (t *Target) Held(e events.Entry, from string) (bool, error) {
	if !t.more {
		return false, nil
	}
	there, err, ok := t.next()
	if err != nil {
		return false, fmt.Errorf("copy to %s: %w", t.name, err)
	}
	if t.more = ok; ok && !sameEntry(e, there) {
		return false, t.conflict(fmt.Sprintf("%s, revision %d of %s, %s", e.ID, e.Revision, e.Stream, from), there)
	}
	return ok, nil
}

// Append appends a record that is not held. It may become durable at the next Flush only.
func (t *Target) Append(ctx context.Context, e events.Entry) error { return t.batch.add(ctx, e) }

// Flush makes all appended records durable.
func (t *Target) Flush(ctx context.Context) error { return t.batch.flush(ctx) }

// End returns a conflict fault if the store has further records.
func (t *Target) End() error {
	if !t.more {
		return nil
	}
	if there, err, ok := t.next(); err != nil {
		return fmt.Errorf("copy to %s: %w", t.name, err)
	} else if ok {
		return t.conflict("nothing", there)
	}
	return nil
}

// conflict returns the fault for the first record at which the store differs from the source.
// The parameter there is that record of the store, and expected describes the source's.
func (t *Target) conflict(expected string, there events.Entry) error {
	f := fault.Usage("%s holds something else: at its position %s there is %s, revision %d of %s, in place of %s",
		t.name, there.Position, there.ID, there.Revision, there.Stream, expected)
	f.Exit, f.Code, f.Hint = fault.ExitConflict, "conflict", "copy into an empty store, or into a namespace of its own: ?namespace=NAME"
	return f
}

// HasOutput reports whether the store itself has an output, or a record that it was pruned.
func (t *Target) HasOutput(ctx context.Context, named domain.Retained) (bool, error) {
	// LocalOutputs ignores other nodes: the target must store the output itself.
	found, err := t.store.LocalOutputs.Stat(ctx, named.Ref)
	if errors.Is(err, outputs.ErrPruned) {
		return true, nil
	}
	if err != nil && !errors.Is(err, outputs.ErrNotFound) {
		return false, fmt.Errorf("copy to %s: %w", t.name, err)
	}
	return err == nil && found == named, nil
}

// KeepOutput stores the bytes of an output, whose settlement the store has already. It returns
// an ErrDamaged if they do not match the size and the digest of the settlement.
func (t *Target) KeepOutput(ctx context.Context, named domain.Retained, from io.Reader) error {
	kept, err := t.store.LocalOutputs.Keep(ctx, named.Ref, named.MIME, from)
	if err == nil && kept != named {
		err = fmt.Errorf("%w: %s has %d bytes with SHA-256 %s, and its settlement says %d and %s", outputs.ErrDamaged, named.Ref, kept.Bytes, kept.SHA256, named.Bytes, named.SHA256)
	}
	if err == nil {
		err = t.store.LocalOutputs.Confirm(ctx, named.Ref.Settlement())
	}
	if err != nil {
		return fmt.Errorf("copy to %s: %w", t.name, err)
	}
	return nil
}
