package storefile

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/resumable"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/spill"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// Exported is the JSON result of ledger export store.
type Exported struct {
	Store     string          `json:"store"`
	File      string          `json:"file"`
	Through   events.Position `json:"through"`   // the end of the log when the export began
	Continued uint64          `json:"continued"` // number of records that an earlier run had written
	Bytes     int64           `json:"bytes"`     // of the file
	ending
}

// A state is the state of an export at a checkpoint.
type state struct {
	ending
	Position events.Position `json:"position"` // of the last record
	Sum      string          `json:"sum"`      // the chain, in hexadecimal
}

// segmentBytes is the size of the lines after which the export makes a checkpoint.
const segmentBytes = 8 << 20

// maxHeldOutputs is the number of pruned outputs in memory.
const maxHeldOutputs = 8192

// An exporter is an export in progress.
type exporter struct {
	store    *stores.Store
	to       resumable.Sink
	head     heading
	at       state
	chain    chain
	digest   *events.Digest
	pruned   *spill.Map[domain.Ref, domain.Ref] // the outputs that an event says were pruned
	since    int                                // bytes since the last checkpoint
	line     []byte                             // memory of a line, used again
	segment  int                                // segmentBytes, but in tests
	progress *render.ProgressBar
}

// Export writes the store to the file at a path, or to the standard output of p for "-", and
// prints the result unless it writes to the standard output.
func Export(ctx context.Context, p *render.Printer, s *stores.Store, path string, o resumable.Options) (err error) {
	memory, err := spill.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	e := newExporter(s, memory)
	e.progress = p.Progress()
	defer e.progress.End()
	if e.head, err = headingOf(ctx, s); err != nil {
		return err
	}
	if path == "-" {
		e.to = resumable.NewStream(p.Out, resumable.Plain)
		return errors.Join(e.run(ctx), memory.Err())
	}
	f, err := resumable.Open(path, contentOf(e.head), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	e.to = f
	if err := e.resume(ctx, f); err != nil {
		return err
	}
	row := Exported{Store: s.Name, File: path, Through: e.head.Through, Continued: e.at.Records}
	if row.Continued > 0 {
		fmt.Fprintf(p.Err, "continuing %s after %s\n", render.Printable(path), render.Count(int(row.Continued), "record"))
	}
	if err := errors.Join(e.run(ctx), memory.Err()); err != nil {
		return err
	}
	e.progress.End()
	row.ending, row.Bytes = e.at.ending, f.Bytes()
	return p.Object(row, func() {
		p.Line("%s of %s and %s written to %s, %s.", render.Count(int(row.Records), "record"), render.Count(int(row.Streams), "stream"),
			render.Count(int(row.Outputs), "output"), render.Printable(path), render.Bytes(row.Bytes))
		p.Line("They are the log up to position %s, its end when the export began.", row.Through)
		if row.Missing > 0 {
			p.Line("%s, which no node that can be asked has, not written: ledger verify lists them.", render.Count(int(row.Missing), "output"))
		}
		p.Line("Digest: %s", row.Digest)
	})
}

// newExporter returns an exporter of a store.
func newExporter(s *stores.Store, memory *spill.Store) *exporter {
	return &exporter{
		store: s, digest: events.NewDigest(), segment: segmentBytes,
		pruned: spill.NewMap(memory, spill.Options[domain.Ref, domain.Ref]{Text: domain.Ref.String, Limit: maxHeldOutputs}),
	}
}

// headingOf returns the heading of an export of a store up to its end.
func headingOf(ctx context.Context, s *stores.Store) (heading, error) {
	h := heading{Format: fileFormat, Version: fileVersion}
	var err error
	if h.Through, err = s.Head(ctx); err != nil || h.Through.IsZero() {
		return h, err
	}
	for first, err := range s.Ledger.Headers(ctx, events.Query{}) {
		if err != nil {
			return h, err
		}
		h.Store = &first.ID
		break
	}
	return h, nil
}

// A content identifies the content of a file for package resumable. The end of the log is not
// part of it: an export continues to the end at which it began.
type content struct {
	Export  string          `json:"export"`
	Version int             `json:"version"`
	Store   *domain.EventID `json:"store"`
}

// contentOf returns the content of a file with a heading.
func contentOf(h heading) content { return content{"store", h.Version, h.Store} }

// resume continues an interrupted export: it sets the heading and the state, and compares the
// digest of the records that are written with the log.
func (e *exporter) resume(ctx context.Context, f *resumable.File) error {
	start, states, ok := f.Resumed()
	if !ok {
		return f.Begin(e.head)
	}
	if err := json.Unmarshal(start, &e.head); err != nil {
		return err
	}
	if len(states) == 0 {
		return nil
	}
	if err := json.Unmarshal(states[len(states)-1], &e.at); err != nil {
		return err
	}
	if n, err := hex.Decode(e.chain[:], []byte(e.at.Sum)); err != nil || n != len(e.chain) {
		return fmt.Errorf("%w: %q is not a sum", resumable.ErrAltered, e.at.Sum)
	}
	for entry, err := range e.entries(ctx, events.Position{}, e.at.Position) {
		if err != nil {
			return err
		}
		e.progress.Show("compare", render.Records, int64(e.digest.Count()), stores.Sequence(entry.Position), stores.Sequence(e.at.Position))
		e.digest.Add(entry)
	}
	if e.digest.Count() != e.at.Records || e.digest.String() != e.at.Digest {
		return fmt.Errorf("%w: the log has other records up to position %s than it has", resumable.ErrOtherContent, e.at.Position)
	}
	return nil
}

// entries yields the records after a position and up to another one, lent. If that is zero, it
// yields nothing.
func (e *exporter) entries(ctx context.Context, after, through events.Position) iter.Seq2[events.Entry, error] {
	if through.IsZero() {
		return func(func(events.Entry, error) bool) {}
	}
	return events.Lend(ctx, e.store.Log, events.Query{After: after, Through: through})
}

// run writes what is missing, from the state on.
func (e *exporter) run(ctx context.Context) error {
	if err := e.readPruned(ctx); err != nil {
		return err
	}
	if e.at.Sum == "" {
		if err := e.object(e.head); err != nil {
			return err
		}
	}
	for entry, err := range e.entries(ctx, e.at.Position, e.head.Through) {
		if err != nil {
			return fmt.Errorf("export after position %s: %w", e.at.Position, err)
		}
		e.progress.Show("export", render.Records, int64(e.at.Records), stores.Sequence(entry.Position), stores.Sequence(e.head.Through))
		if err := e.record(ctx, entry); err != nil {
			return err
		}
		if e.since < e.segment {
			continue
		}
		if err := e.checkpoint(); err != nil {
			return err
		}
	}
	e.at.Digest = e.digest.String()
	if err := e.object(struct {
		End ending `json:"end"`
	}{e.at.ending}); err != nil {
		return err
	}
	return e.to.Finish()
}

// checkpoint makes the lines so far durable.
func (e *exporter) checkpoint() error {
	e.since, e.at.Digest, e.at.Sum = 0, e.digest.String(), hex.EncodeToString(e.chain[:])
	return e.to.Checkpoint(e.at)
}

// readPruned reads which outputs were pruned.
func (e *exporter) readPruned(ctx context.Context) error {
	if e.head.Through.IsZero() {
		return nil
	}
	q := events.Query{Filter: events.Filter{Kinds: []string{events.OutputPruned{}.Kind()}}, Through: e.head.Through}
	for entry, err := range events.Lend(ctx, e.store.Log, q) {
		if err != nil {
			return err
		}
		if pruned, ok := decoded(entry).(events.OutputPruned); ok {
			ref := pruned.Retained.Ref
			e.pruned.Put(ref, &ref)
			e.pruned.Trim()
		}
	}
	return nil
}

// object writes the line of an object.
func (e *exporter) object(v any) error {
	body, err := object(v)
	if err != nil {
		return err
	}
	return e.write(body)
}

// write completes a line and writes it.
func (e *exporter) write(body []byte) error {
	e.line = e.chain.seal(body)
	e.since += len(e.line)
	_, err := e.to.Write(e.line)
	return err
}

// record writes a record, and the outputs that it names if it is a settlement.
func (e *exporter) record(ctx context.Context, entry events.Entry) error {
	e.digest.Add(entry)
	e.at.Records++
	e.at.Position = entry.Position
	if entry.Revision == 1 {
		e.at.Streams++
	}
	if err := e.write(appendRecord(e.line[:0], entry)); err != nil {
		return err
	}
	for _, named := range retainedBy(entry) {
		if e.pruned.Get(named.Ref) != nil {
			continue
		}
		e.pruned.Trim()
		if err := e.output(ctx, named); err != nil {
			return fmt.Errorf("export of %s, which %s at position %s names: %w", named.Ref, entry.ID, entry.Position, err)
		}
	}
	return nil
}

// decoded returns the event of a record, or nil if it does not decode: its line has its bytes,
// whatever they are.
func decoded(e events.Entry) events.Event {
	v, err := events.Decode(e)
	if err != nil {
		return nil
	}
	return v.Event
}

// retainedBy returns the outputs that a record names if it is a settlement.
func retainedBy(e events.Entry) []domain.Retained {
	if e.Kind != (events.CallSettled{}).Kind() {
		return nil
	}
	settled, _ := decoded(e).(events.CallSettled)
	return settled.Retained
}

// output writes an output in chunks, or that no reachable node has it.
func (e *exporter) output(ctx context.Context, named domain.Retained) error {
	from, err := e.store.Outputs.Open(ctx, named.Ref)
	if errors.Is(err, outputs.ErrNotFound) || errors.Is(err, outputs.ErrPruned) || stores.NodeFailed(err) {
		e.at.Missing++
		return e.object(struct {
			Missing domain.Retained `json:"missing"`
		}{named})
	}
	if err != nil {
		return err
	}
	defer from.Close()
	if kept := from.Retained(); kept != named {
		return fmt.Errorf("%w: it has %d bytes with SHA-256 %s, and its settlement says %d and %s", outputs.ErrDamaged, kept.Bytes, kept.SHA256, named.Bytes, named.SHA256)
	}
	if err := e.object(struct {
		Output domain.Retained `json:"output"`
	}{named}); err != nil {
		return err
	}
	chunk := make([]byte, min(chunkBytes, named.Bytes))
	for left := named.Bytes; left > 0; left -= int64(len(chunk)) {
		chunk = chunk[:min(int64(len(chunk)), left)]
		if _, err := io.ReadFull(from, chunk); err != nil {
			return err
		}
		b := append(e.line[:0], `{"chunk":"`...)
		b = base64.StdEncoding.AppendEncode(b, chunk)
		if err := e.write(append(b, '"')); err != nil {
			return err
		}
	}
	e.at.Outputs++
	e.at.OutputBytes += named.Bytes
	return nil
}
