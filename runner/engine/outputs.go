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

// ReferencedOutputs collects the outputs that the settlements of a log reference, record
// by record. It excludes pruned outputs. It also excludes the outputs of a process that
// stores them on its own node: a process with a lease whose ProcessStarted does not
// record that its outputs are in the store. It belongs to one goroutine.
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

// A MissingOutput is an output that a settlement references and the store of outputs
// lacks or has with other content.
type MissingOutput struct {
	Ref    domain.Ref
	Stream events.Stream // of the settlement
	Reason string
}

// Missing returns the referenced outputs that are not in known, or differ there in size
// or digest, in the order of the log.
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

// BackupOutputs are the outputs of a backup. It checks them against the log of the
// backup.
type BackupOutputs struct{ *outputs.Store }

// Missing returns the references in records whose outputs the copy in dir lacks. It
// returns the first error of records.
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

// outputsIDKey is the name of the checkpoint that stores the ID of the outputs which
// belong to a log.
const outputsIDKey = "store/outputs"

// OpenOutputs opens the outputs in the folder dir of the open store log. The caller
// closes them.
//
// OpenOutputs compares the ID of the outputs with the ID that the log was last opened
// with. If they differ and the outputs lack one that the log references, it returns
// storedir.ErrIncomplete: the subfolder was lost or emptied, or belongs to another store.
// It does not create a new subfolder in place of a lost one.
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

// ReadOutputs opens the outputs in the folder dir of a store that is open for reading
// only. It returns storedir.ErrIncomplete in the same cases as OpenOutputs. The caller
// closes them.
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

// saveOutputsID stores the ID of the outputs as a checkpoint of the log. If the log has
// another ID, it first checks that the outputs are complete.
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

// savedOutputsID returns the ID of the outputs that the log was last opened with, or an
// empty text if the log has no such checkpoint.
func savedOutputsID(ctx context.Context, log *embedded.Store) (id string, err error) {
	data, err := log.LoadCheckpoint(ctx, outputsIDKey)
	if err != nil || json.Unmarshal(data, &id) != nil {
		return "", nil // it is saved anew
	}
	return id, nil
}

// checkComplete returns storedir.ErrIncomplete if the outputs lack one that the log
// references. kept is nil for a missing subfolder. The check ends at the first damaged
// record.
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
