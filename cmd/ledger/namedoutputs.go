package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A namedOutput is an output that a settlement in the log names.
type namedOutput struct {
	domain.Retained
	stream events.Stream
}

// namedOutputs collects, record by record, the outputs that belong beside a log:
// those that settlements name, but for those that were pruned and those of
// processes that worked on the log from elsewhere, which have a lease and keep
// their outputs on their own node.
type namedOutputs struct {
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

func newNamedOutputs() *namedOutputs {
	return &namedOutputs{named: map[domain.Ref]namedOutput{}, remote: map[domain.ProcessID]bool{}, began: map[callKey]domain.ProcessID{}}
}

// outputKinds are the kinds of events that namedOutputs needs.
var outputKinds = events.Filter{Kinds: []string{
	events.ProcessStarted{}.Kind(), events.CallStarted{}.Kind(), events.CallSettled{}.Kind(), events.OutputPruned{}.Kind(),
}}

// add takes the next record. One that cannot be decoded names no output.
func (n *namedOutputs) add(e events.Entry) {
	if !outputKinds.Matches(events.Header{Kind: e.Kind, Time: e.Time, Stream: e.Stream}) {
		return
	}
	v, err := events.Decode(e)
	if err != nil {
		return
	}
	switch e := v.Event.(type) {
	case events.ProcessStarted:
		n.remote[e.Process] = !e.Until.IsZero()
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

// A lostOutput is an output that the log names and the store does not have.
type lostOutput struct {
	ref    domain.Ref
	stream events.Stream
	why    string
}

// missing returns the outputs that a store does not have that knows so many.
func (n *namedOutputs) missing(known map[domain.Ref]domain.Retained) (lost []lostOutput) {
	for _, ref := range n.order {
		want, ok := n.named[ref]
		if !ok {
			continue // pruned
		}
		got, there := known[ref]
		switch {
		case !there:
			lost = append(lost, lostOutput{ref, want.stream, "the output is missing, and a settlement names it"})
		case got != want.Retained:
			lost = append(lost, lostOutput{ref, want.stream, fmt.Sprintf("it has %d bytes with SHA-256 %s, and its settlement names %d with %s",
				got.Bytes, got.SHA256, want.Bytes, want.SHA256)})
		}
	}
	return lost
}

// referencedOutputs are the outputs as a part of a backup.
type referencedOutputs struct{ *outputs.Store }

// Missing returns the outputs that the records name and a copy of the outputs
// lacks.
func (referencedOutputs) Missing(ctx context.Context, dir string, records iter.Seq2[events.Entry, error]) ([]string, error) {
	named := newNamedOutputs()
	for e, err := range records {
		if err != nil {
			return nil, err
		}
		named.add(e)
	}
	known, err := outputs.Known(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, lost := range named.missing(known) {
		names = append(names, lost.ref.String())
	}
	return names, nil
}

// outputsCheckpoint is the name of the checkpoint in a log that holds the ID of
// the outputs beside it.
const outputsCheckpoint = "store/outputs"

// openOutputs opens the outputs in the folder of a store. Outputs that are not
// those that the log was last opened with are an embedded.ErrIncomplete if they
// lack any that the log names: the folder was lost, emptied, or is of another
// store. A folder that was lost stays so.
func openOutputs(ctx context.Context, log *embedded.Store, dir string, logger *slog.Logger) (*outputs.Store, error) {
	path := filepath.Join(dir, outputsName)
	bound, err := boundOutputs(ctx, log)
	if err != nil {
		return nil, err
	}
	if bound != "" && missing(path) {
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

// boundOutputs returns the ID of the outputs that a log was last opened with, and
// nothing where that is not known.
func boundOutputs(ctx context.Context, log *embedded.Store) (id string, err error) {
	data, err := log.LoadCheckpoint(ctx, outputsCheckpoint)
	if err != nil || json.Unmarshal(data, &id) != nil {
		return "", nil // it is saved anew
	}
	return id, nil
}

// lacking returns an embedded.ErrIncomplete if outputs, or a folder without any,
// lack outputs that a log names. Records that cannot be read name none.
func lacking(ctx context.Context, log *embedded.Store, path string, kept *outputs.Store) error {
	named := newNamedOutputs()
	for e, err := range log.Scan(ctx, events.Query{Filter: outputKinds}) {
		if err != nil && !errors.Is(err, events.ErrDamaged) {
			return err
		}
		if err != nil {
			break
		}
		named.add(e)
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
	lost := named.missing(known)
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s is not the folder of outputs that belongs to the log, and lacks %s that the log names, the first %s: "+
		"copy the whole folder, or restore a backup", embedded.ErrIncomplete, path, count(len(lost), "output"), lost[0].ref)
}
