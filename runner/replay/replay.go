package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/registry"
)

// A Config says where a tape is replayed. Store, Mint, Now and Process are required.
type Config struct {
	// Store receives the new session and its layers, whose process is Process.
	Store   events.Store
	Mint    *domain.Mint
	Now     func() time.Time
	Process domain.ProcessID
	// Recording has the past of a fork. Nil: Store has it.
	Recording events.Store
	// Outputs keeps the outputs of the new session that exceed the limits. Nil: a
	// [Digests].
	Outputs registry.Outputs
	// Source opens the kept outputs of the recording. Nil: they are not kept any more.
	Source OutputSource
}

// Run replays a tape and compares the new session with the recorded one. It asks no model
// and runs no tool. It returns an error if the store fails or ctx ends; the new session then
// ends where it is. A difference is no error.
func (t *Tape) Run(ctx context.Context, config Config) (*Report, error) {
	if config.Outputs == nil {
		config.Outputs = Digests{}
	}
	d := &driver{
		tape: t, config: config, session: config.Mint.Session(), catalog: catalog.New(),
		programs: map[domain.ProcessID]*program{}, layers: map[domain.LayerID]*replayedLayer{}, scopes: map[domain.RegistrationID]*registry.Scope{},
		done: make([]bool, len(t.entries)), permissions: map[domain.PermissionID]domain.PermissionID{},
		waiters: map[*waiter]bool{}, settling: map[callKey]callKey{}, left: map[callKey]int{},
	}
	d.changed = sync.NewCond(&d.mu)
	d.labels = newLabeler(d.session)
	if err := d.play(ctx); err != nil {
		return nil, fmt.Errorf("replay session %s: %w", t.session, err)
	}
	l := events.NewLedger(config.Store, config.Mint, config.Now)
	replayed, err := d.replayed(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("read the replay of %s: %w", t.session, err)
	}
	gone, err := t.missingOutputs(ctx, config.Source)
	if err != nil {
		return nil, fmt.Errorf("read the outputs of %s: %w", t.session, err)
	}
	return t.compare(d.session, replayed, gone), nil
}

// replayed returns the events of the new session and of its layers, in the order of the
// log.
func (d *driver) replayed(ctx context.Context, l *events.Ledger) ([]events.Envelope, error) {
	streams := []events.Stream{events.SessionStream(d.session)}
	for _, layer := range d.layers {
		streams = append(streams, events.LayerStream(layer.ID()))
	}
	var all []events.Envelope
	for _, s := range streams {
		for v, err := range l.Read(ctx, s, 0) {
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
	}
	slices.SortStableFunc(all, func(a, b events.Envelope) int { return a.Position.Compare(b.Position) })
	return all, nil
}

// missingOutputs returns the labels of the calls of which an output is not kept any more.
func (t *Tape) missingOutputs(ctx context.Context, source OutputSource) (map[string]bool, error) {
	gone := map[string]bool{}
	for _, e := range t.entries {
		end, ok := e.Event.(events.CallSettled)
		if !ok {
			continue
		}
		for _, r := range end.Retained {
			if source == nil {
				gone[e.label] = true
				continue
			}
			f, err := source(ctx, r.Ref)
			switch {
			case errors.Is(err, ErrOutputGone):
				gone[e.label] = true
			case err != nil:
				return nil, err
			default:
				_ = f.Close()
			}
		}
	}
	return gone, nil
}

// Digests is a registry.Outputs that keeps the digest and the size of each output and not
// its bytes, for a session whose store is thrown away.
type Digests struct{}

// Keep implements registry.Outputs.
func (Digests) Keep(_ context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return domain.Retained{}, err
	}
	sum := sha256.Sum256(data)
	return domain.Retained{
		Ref: ref, Bytes: int64(len(data)), Lines: int64(strings.Count(string(data), "\n") + 1), MIME: mime, SHA256: hex.EncodeToString(sum[:]),
	}, nil
}

// Confirm implements registry.Outputs.
func (Digests) Confirm(context.Context, domain.EventID) error { return nil }
