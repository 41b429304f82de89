package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A namedOutput is an output that a settlement in the log names.
type namedOutput struct {
	domain.Retained
	stream events.Stream
}

// NamedOutputs collects, record by record, the outputs that belong beside a log:
// every output that a settlement names, except pruned outputs and outputs of
// processes that keep them on a node of their own: those with a lease that are not
// on record as keeping them in the store. It belongs to one goroutine.
type NamedOutputs struct {
	named  map[domain.Ref]namedOutput
	order  []domain.Ref
	remote map[domain.ProcessID]bool
	began  map[callKey]domain.ProcessID // of the calls that have no end yet
}

type callKey struct {
	stream  events.Stream
	message domain.MessageID
	call    domain.CallID
}

// NewNamedOutputs returns a collection that has seen no record.
func NewNamedOutputs() *NamedOutputs {
	return &NamedOutputs{named: map[domain.Ref]namedOutput{}, remote: map[domain.ProcessID]bool{}, began: map[callKey]domain.ProcessID{}}
}

// outputKinds are the kinds of events that NamedOutputs needs.
var outputKinds = events.Filter{Kinds: []string{
	events.ProcessStarted{}.Kind(), events.CallStarted{}.Kind(), events.CallSettled{}.Kind(), events.OutputPruned{}.Kind(),
}}

// Add takes the next record. One that cannot be decoded names no output.
func (n *NamedOutputs) Add(e events.Entry) {
	if !outputKinds.Matches(events.Header{Kind: e.Kind, Time: e.Time, Stream: e.Stream}) {
		return
	}
	v, err := events.Decode(e)
	if err != nil {
		return
	}
	switch e := v.Event.(type) {
	case events.ProcessStarted:
		n.remote[e.Process] = !e.Until.IsZero() && !e.InStore
	case events.CallStarted:
		n.began[callKey{v.Stream, e.Message, e.Call}] = e.Process
	case events.CallSettled:
		key := callKey{v.Stream, e.Message, e.Call}
		elsewhere := n.remote[n.began[key]]
		delete(n.began, key)
		for _, r := range e.Retained {
			if _, known := n.named[r.Ref]; !known && !elsewhere {
				n.named[r.Ref] = namedOutput{r, v.Stream}
				n.order = append(n.order, r.Ref)
			}
		}
	case events.OutputPruned:
		delete(n.named, e.Retained.Ref)
	}
}

// A LostOutput is an output that a log names and the outputs lack.
type LostOutput struct {
	Ref    domain.Ref
	Stream events.Stream // of the settlement
	Reason string
}

// Missing returns the outputs that the records name and that are not among
// known, in the order of the log.
func (n *NamedOutputs) Missing(known map[domain.Ref]domain.Retained) (lost []LostOutput) {
	for _, ref := range n.order {
		want, ok := n.named[ref]
		if !ok {
			continue // pruned
		}
		got, there := known[ref]
		switch {
		case !there:
			lost = append(lost, LostOutput{ref, want.stream, "the output is missing, and a settlement names it"})
		case got != want.Retained:
			lost = append(lost, LostOutput{ref, want.stream, fmt.Sprintf("it has %d bytes with SHA-256 %s, and its settlement names %d with %s",
				got.Bytes, got.SHA256, want.Bytes, want.SHA256)})
		}
	}
	return lost
}

// BackedUpOutputs are outputs as a part of a backup, which is held against the
// log of the backup.
type BackedUpOutputs struct{ *outputs.Store }

// Missing returns the references that the records name and that a copy of the
// outputs in dir lacks.
func (BackedUpOutputs) Missing(ctx context.Context, dir string, records iter.Seq2[events.Entry, error]) ([]string, error) {
	named := NewNamedOutputs()
	for e, err := range records {
		if err != nil {
			return nil, err
		}
		named.Add(e)
	}
	known, err := outputs.Inventory(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, lost := range named.Missing(known) {
		names = append(names, lost.Ref.String())
	}
	return names, nil
}

// outputsCheckpoint is the name of the checkpoint in a log that holds the ID of
// the outputs beside it.
const outputsCheckpoint = "store/outputs"

// OpenOutputs opens the outputs in the folder of a store whose log is open. The
// caller closes them. Outputs that are not those that the log was last opened with
// are an storedir.ErrIncomplete if they lack any that the log names: the folder was
// lost, emptied, or is of another store. A folder that was lost is not made anew.
func OpenOutputs(ctx context.Context, log *embedded.Store, dir string, logger *slog.Logger) (*outputs.Store, error) {
	path := filepath.Join(dir, OutputsFolder)
	bound, err := boundOutputs(ctx, log)
	if err != nil {
		return nil, err
	}
	if bound != "" && absent(path) {
		if err := lacking(ctx, log, path, nil); err != nil {
			return nil, err
		}
	}
	kept, err := outputs.Open(path, outputs.Config{Logger: logger})
	if err != nil {
		return nil, err
	}
	if err := bindOutputs(ctx, log, path, kept, bound); err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	return kept, nil
}

// ReadOutputs opens the outputs in the folder of a store that was opened to read
// only, as outputs.OpenReader does. Outputs that do not belong to the log are
// refused as OpenOutputs refuses them. The caller closes them.
func ReadOutputs(ctx context.Context, log *embedded.Store, dir string, logger *slog.Logger) (*outputs.Store, error) {
	path := filepath.Join(dir, OutputsFolder)
	bound, err := boundOutputs(ctx, log)
	if err != nil {
		return nil, err
	}
	kept, err := outputs.OpenReader(ctx, path, outputs.Config{Logger: logger})
	if err != nil {
		return nil, err
	}
	id, err := kept.ID()
	if err == nil && bound != "" && id != bound {
		err = lacking(ctx, log, path, kept)
	}
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	return kept, nil
}

// bindOutputs saves the ID of the outputs in the log, if it is not that which the
// log was bound to and they lack nothing that the log names.
func bindOutputs(ctx context.Context, log *embedded.Store, path string, kept *outputs.Store, bound string) error {
	id, err := kept.ID()
	if err != nil || id == bound {
		return err
	}
	if bound != "" {
		if err := lacking(ctx, log, path, kept); err != nil {
			return err
		}
	}
	text, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return log.SaveCheckpoint(ctx, outputsCheckpoint, text)
}

// absent reports whether a folder does not exist, or is empty.
func absent(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0
}

// boundOutputs returns the ID of the outputs that a log was last opened with, and
// nothing where that is not known.
func boundOutputs(ctx context.Context, log *embedded.Store) (id string, err error) {
	data, err := log.LoadCheckpoint(ctx, outputsCheckpoint)
	if err != nil || json.Unmarshal(data, &id) != nil {
		return "", nil // it is saved anew
	}
	return id, nil
}

// lacking returns an storedir.ErrIncomplete if outputs, or a folder without any,
// lack outputs that a log names. Records that cannot be read name none.
func lacking(ctx context.Context, log *embedded.Store, path string, kept *outputs.Store) error {
	named := NewNamedOutputs()
	for e, err := range log.Scan(ctx, events.Query{Filter: outputKinds}) {
		if err != nil && !errors.Is(err, events.ErrDamaged) {
			return err
		}
		if err != nil {
			break
		}
		named.Add(e)
	}
	known := map[domain.Ref]domain.Retained{}
	if kept != nil {
		for r, err := range kept.All(ctx) {
			if err != nil {
				return err
			}
			known[r.Ref] = r
		}
	}
	lost := named.Missing(known)
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s is not the folder of outputs that belongs to the log, and lacks %d outputs that the log names, the first %s: "+
		"copy the whole folder, or restore a backup", storedir.ErrIncomplete, path, len(lost), lost[0].Ref)
}
