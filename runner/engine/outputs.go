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

// A referencedOutput is an output that a settlement references, with the stream of the
// settlement.
type referencedOutput struct {
	domain.Retained
	stream events.Stream
}

// ReferencedOutputs collects the outputs that the settlements of a log reference. Add
// takes the records of the log one by one. ReferencedOutputs leaves out pruned outputs.
// It also leaves out the outputs of a process that stored them on its own node and not
// in the store: a process with a lease whose ProcessStarted does not have InStore set.
// It belongs to one goroutine.
type ReferencedOutputs struct {
	byRef     map[domain.Ref]referencedOutput
	order     []domain.Ref
	ownNode   map[domain.ProcessID]bool    // whether a process stores its outputs outside the store
	openCalls map[callKey]domain.ProcessID // processes of the calls without a settlement so far
}

// A callKey identifies a call in a log.
type callKey struct {
	stream  events.Stream
	message domain.MessageID
	call    domain.CallID
}

// NewReferencedOutputs returns an empty collection. The caller adds every record of the
// log in order.
func NewReferencedOutputs() *ReferencedOutputs {
	return &ReferencedOutputs{byRef: map[domain.Ref]referencedOutput{}, ownNode: map[domain.ProcessID]bool{}, openCalls: map[callKey]domain.ProcessID{}}
}

// outputKinds selects the kinds of events that ReferencedOutputs reads.
var outputKinds = events.Filter{Kinds: []string{
	events.ProcessStarted{}.Kind(), events.CallStarted{}.Kind(), events.CallSettled{}.Kind(), events.OutputPruned{}.Kind(),
}}

// Add takes the next record of the log. It ignores a record that cannot be decoded.
func (n *ReferencedOutputs) Add(e events.Entry) {
	if !outputKinds.Matches(events.Header{Kind: e.Kind, Time: e.Time, Stream: e.Stream}) {
		return
	}
	v, err := events.Decode(e)
	if err != nil {
		return
	}
	switch e := v.Event.(type) {
	case events.ProcessStarted:
		n.ownNode[e.Process] = !e.Until.IsZero() && !e.InStore
	case events.CallStarted:
		n.openCalls[callKey{v.Stream, e.Message, e.Call}] = e.Process
	case events.CallSettled:
		key := callKey{v.Stream, e.Message, e.Call}
		elsewhere := n.ownNode[n.openCalls[key]]
		delete(n.openCalls, key)
		for _, r := range e.Retained {
			if _, known := n.byRef[r.Ref]; !known && !elsewhere {
				n.byRef[r.Ref] = referencedOutput{r, v.Stream}
				n.order = append(n.order, r.Ref)
			}
		}
	case events.OutputPruned:
		delete(n.byRef, e.Retained.Ref)
	}
}

// A MissingOutput is an output that a settlement references, and that the store of
// outputs either does not have or has with other content.
type MissingOutput struct {
	Ref    domain.Ref
	Stream events.Stream // of the settlement
	Reason string
}

// Missing returns the referenced outputs that known does not contain, or contains with
// another size or digest. They have the order of the log.
func (n *ReferencedOutputs) Missing(known map[domain.Ref]domain.Retained) (lost []MissingOutput) {
	for _, ref := range n.order {
		want, ok := n.byRef[ref]
		if !ok {
			continue // pruned
		}
		got, there := known[ref]
		switch {
		case !there:
			lost = append(lost, MissingOutput{ref, want.stream, "the output is missing, and a settlement names it"})
		case got != want.Retained:
			lost = append(lost, MissingOutput{ref, want.stream, fmt.Sprintf("it has %d bytes with SHA-256 %s, and its settlement names %d with %s",
				got.Bytes, got.SHA256, want.Bytes, want.SHA256)})
		}
	}
	return lost
}

// BackupOutputs checks the outputs of a backup against the log of the backup.
type BackupOutputs struct{ *outputs.Store }

// Missing returns the references to outputs in records that the copy of the outputs in
// dir does not contain. It returns the first error of records.
func (BackupOutputs) Missing(ctx context.Context, dir string, records iter.Seq2[events.Entry, error]) ([]string, error) {
	named := NewReferencedOutputs()
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

// outputsIDKey is the name of the checkpoint in which a log has the ID of its store of
// outputs.
const outputsIDKey = "store/outputs"

// OpenOutputs opens the store of outputs in the subfolder OutputsFolder of dir, the
// folder of the open store log. It creates a missing subfolder. The caller closes the
// result.
//
// A store of outputs has an ID, and a checkpoint of the log has the ID of the store of
// outputs that was opened last. If the IDs differ, or the subfolder is missing or empty
// although the log has such a checkpoint, OpenOutputs checks that the subfolder has
// every output that the log references. If one is missing, it returns
// storedir.ErrIncomplete and creates no subfolder. Otherwise it saves the new ID.
func OpenOutputs(ctx context.Context, log *embedded.Store, dir string, logger *slog.Logger) (*outputs.Store, error) {
	path := filepath.Join(dir, OutputsFolder)
	bound, err := savedOutputsID(ctx, log)
	if err != nil {
		return nil, err
	}
	if bound != "" && missingOrEmpty(path) {
		if err := checkComplete(ctx, log, path, nil); err != nil {
			return nil, err
		}
	}
	kept, err := outputs.Open(path, outputs.Config{Logger: logger})
	if err != nil {
		return nil, err
	}
	if err := saveOutputsID(ctx, log, path, kept, bound); err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	return kept, nil
}

// ReadOutputs opens the store of outputs in the subfolder OutputsFolder of dir, for a
// log that is open for reading only. It returns storedir.ErrIncomplete in the same
// cases as OpenOutputs. The caller closes the result.
func ReadOutputs(ctx context.Context, log *embedded.Store, dir string, logger *slog.Logger) (*outputs.Store, error) {
	path := filepath.Join(dir, OutputsFolder)
	bound, err := savedOutputsID(ctx, log)
	if err != nil {
		return nil, err
	}
	kept, err := outputs.OpenReader(ctx, path, outputs.Config{Logger: logger})
	if err != nil {
		return nil, err
	}
	id, err := kept.ID()
	if err == nil && bound != "" && id != bound {
		err = checkComplete(ctx, log, path, kept)
	}
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	return kept, nil
}

// saveOutputsID saves the ID of kept, an open store of outputs, in a checkpoint of the
// log. bound is the ID that the log has, or empty. If bound is another ID,
// saveOutputsID first checks that kept has every output that the log references.
func saveOutputsID(ctx context.Context, log *embedded.Store, path string, kept *outputs.Store, bound string) error {
	id, err := kept.ID()
	if err != nil || id == bound {
		return err
	}
	if bound != "" {
		if err := checkComplete(ctx, log, path, kept); err != nil {
			return err
		}
	}
	text, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return log.SaveCheckpoint(ctx, outputsIDKey, text)
}

// missingOrEmpty reports whether a folder does not exist or is empty.
func missingOrEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0
}

// savedOutputsID returns the ID that the checkpoint outputsIDKey of the log has, or an
// empty text if that checkpoint is missing or cannot be read.
func savedOutputsID(ctx context.Context, log *embedded.Store) (id string, err error) {
	data, err := log.LoadCheckpoint(ctx, outputsIDKey)
	if err != nil || json.Unmarshal(data, &id) != nil {
		return "", nil // it is saved anew
	}
	return id, nil
}

// checkComplete returns storedir.ErrIncomplete if kept, the store of outputs, does not
// have an output that the log references. kept is nil for a missing subfolder. The
// check ends at the first damaged record.
func checkComplete(ctx context.Context, log *embedded.Store, path string, kept *outputs.Store) error {
	named := NewReferencedOutputs()
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
