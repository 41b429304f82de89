package receipts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// ErrOtherStore reports a store that is not the one of the receipt.
var ErrOtherStore = errors.New("receipt is of another store")

// ErrNoCall reports a call without an event.
var ErrNoCall = errors.New("session has no event of the call")

// Make returns the receipt of a call. It reads the session of the call and every output of the
// call that the store has. It returns an ErrNoCall, an events.ErrDamaged for a record of the
// session that does not decode, and an outputs.ErrDamaged for an output whose bytes are not those
// of its settlement.
func Make(ctx context.Context, s *stores.Store, key calls.Key, program Program, now time.Time) (*Receipt, error) {
	r := &Receipt{
		ReceiptVersion: Version, Program: program, Made: now.UTC().Format(timeForm), Call: CallRef(key), Events: []RecordedEvent{}, Outputs: []NamedOutput{}, TreeHead: noTreeHead,
	}
	var err error
	if r.Store, err = storeRef(ctx, s); err != nil {
		return nil, err
	}
	selection := calls.NewSelection(key)
	var settled *events.CallSettled
	for e, err := range s.Log.Read(ctx, events.SessionStream(key.Session), 0) {
		if err != nil {
			return nil, err
		}
		v, err := events.Decode(e)
		if err != nil {
			return nil, err
		}
		r.Head = Head{e.Revision, e.ID, e.Position}
		if role := selection.Role(v.Event); role != "" {
			r.Events = append(r.Events, newEvent(role, e))
		}
		settled = settlementOf(key, settled, v.Event)
	}
	if len(r.Events) == 0 {
		return nil, fmt.Errorf("%w: %s of %s", ErrNoCall, key.Call, key.Message)
	}
	if settled == nil {
		return r, nil
	}
	for _, named := range settled.Retained {
		o, err := outputOf(ctx, s, named)
		if err != nil {
			return nil, err
		}
		r.Outputs = append(r.Outputs, o)
	}
	return r, nil
}

// settlementOf returns before, or else e if it is the settlement of a call. A call has one
// settlement by law; later ones do not count.
func settlementOf(key calls.Key, before *events.CallSettled, e events.Event) *events.CallSettled {
	if s, ok := e.(events.CallSettled); ok && before == nil && s.Message == key.Message && s.Call == key.Call {
		return &s
	}
	return before
}

// storeRef returns the identity of a store, or ErrOtherStore for an empty one.
func storeRef(ctx context.Context, s *stores.Store) (StoreRef, error) {
	for e, err := range s.Entries(ctx, events.Position{}) {
		if err != nil {
			return StoreRef{}, fmt.Errorf("read the first record: %w", err)
		}
		return StoreRef{e.ID, digestOf(e)}, nil
	}
	return StoreRef{}, fmt.Errorf("%w: this one is empty", ErrOtherStore)
}

// outputOf returns the state of an output that a settlement names. It reads the bytes of a kept
// output, and returns an outputs.ErrDamaged if they are not those that the settlement names.
func outputOf(ctx context.Context, s *stores.Store, named domain.Retained) (NamedOutput, error) {
	o := NamedOutput{Retained: named, State: Kept}
	found, err := s.Outputs.Stat(ctx, named.Ref)
	if err == nil {
		err = s.Outputs.Verify(ctx, named.Ref)
	}
	pruned, isPruned := errors.AsType[*outputs.PrunedError](err)
	switch {
	case isPruned:
		o.State, found = Pruned, pruned.Retained
	case errors.Is(err, outputs.ErrNotFound):
		o.State = Missing
		return o, nil
	case stores.NodeFailed(err):
		o.State = Unreachable
		return o, nil
	case err != nil:
		return o, err
	}
	if found != named {
		return o, fmt.Errorf("%w: %s has %d bytes of %s with SHA-256 %s, and its settlement says %d of %s with %s",
			outputs.ErrDamaged, named.Ref, found.Bytes, found.MIME, found.SHA256, named.Bytes, named.MIME, named.SHA256)
	}
	return o, nil
}
