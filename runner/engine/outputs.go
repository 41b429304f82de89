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

// A referencedOutput is an output that a settlement in the log names.
type referencedOutput struct {
	domain.Retained
	stream events.Stream
}

// ReferencedOutputs collects, record by record, the outputs that the folder of a
// store must contain: every output that a settlement in the log names, except pruned
// outputs and outputs that a process stored on its own node. The ProcessStarted of
// such a process has Until and not InStore. A ReferencedOutputs belongs to one
// goroutine.
type ReferencedOutputs struct {
	byRef     map[domain.Ref]referencedOutput
	order     []domain.Ref
	ownNode   map[domain.ProcessID]bool
	openCalls map[callKey]domain.ProcessID // of the calls that have no end yet
}

type callKey struct {
	stream  events.Stream
	message domain.MessageID
	call    domain.CallID
}

// NewReferencedOutputs returns a collection that has seen no record.
func NewReferencedOutputs() *ReferencedOutputs {
	return &ReferencedOutputs{byRef: map[domain.Ref]referencedOutput{}, ownNode: map[domain.ProcessID]bool{}, openCalls: map[callKey]domain.ProcessID{}}
}

// outputKinds are the kinds of events that NamedOutputs needs.
var outputKinds = events.Filter{Kinds: []string{
	events.ProcessStarted{}.Kind(), events.CallStarted{}.Kind(), events.CallSettled{}.Kind(), events.OutputPruned{}.Kind(),
}}

// Add takes the next record. One that cannot be decoded names no output.
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

// A MissingOutput is an output that a log names and the outputs lack.
type MissingOutput struct {
	Ref    domain.Ref
	Stream events.Stream // of the settlement
	Reason string
}

// Missing returns the outputs that the records name and that are not among
// known, in the order of the log.
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

// BackupOutputs are the outputs of a backup. Missing compares them with the log of
// the backup.
type BackupOutputs struct{ *outputs.Store }

// Missing reads the records of a log and returns the references of the outputs that
// they name and that the outputs in dir lack, or have with another size or digest.
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

// outputsIDKey is the name of the checkpoint in a log that holds the ID of
// the outputs beside it.
const outputsIDKey = "store/outputs"

// OpenOutputs opens the outputs in the folder of a store whose log is open. The
// caller closes them. Outputs that are not those that the log was last opened with
// are an storedir.ErrIncomplete if they lack any that the log names: the folder was
// lost, emptied, or is of another store. A folder that was lost is not made anew.
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

// ReadOutputs opens the outputs in the folder of a store that was opened to read
// only, as outputs.OpenReader does. Outputs that do not belong to the log are
// refused as OpenOutputs refuses them. The caller closes them.
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

// saveOutputsID saves the ID of the outputs in the log, if it is not that which the
// log was bound to and they lack nothing that the log names.
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

// missingOrEmpty reports whether a folder does not exist, or is empty.
func missingOrEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0
}

// savedOutputsID returns the ID of the outputs that a log was last opened with, and
// nothing where that is not known.
func savedOutputsID(ctx context.Context, log *embedded.Store) (id string, err error) {
	data, err := log.LoadCheckpoint(ctx, outputsIDKey)
	if err != nil || json.Unmarshal(data, &id) != nil {
		return "", nil // it is saved anew
	}
	return id, nil
}

// checkComplete returns a storedir.ErrIncomplete if outputs, or a folder without any,
// lack outputs that a log names. Records that cannot be read name none.
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
