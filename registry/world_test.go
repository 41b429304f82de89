package registry_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
)

var (
	errPower = errors.New("power went away")
	errFull  = errors.New("disk full")
)

// A mishap is the result of one append of a shaky store.
type mishap int

const (
	none     mishap = iota
	nothing         // an error, and no event was added
	added           // an error, and all events were added
	mistaken        // ErrTooLarge, and no event was added
)

// A shaky store is a store whose appends fail on request.
type shaky struct {
	*eventstest.Slice
	mu struct {
		sync.Mutex
		next func(events.Stream) mishap
	}
}

func (s *shaky) suffer(next func(events.Stream) mishap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.next = next
}

func (s *shaky) recover() { s.suffer(nil) }

func (s *shaky) next(stream events.Stream) mishap {
	s.mu.Lock()
	next := s.mu.next
	s.mu.Unlock()
	if next == nil {
		return none
	}
	return next(stream)
}

func always(m mishap) func(events.Stream) mishap { return func(events.Stream) mishap { return m } }

func (s *shaky) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	switch s.next(stream) {
	case nothing:
		return errPower
	case mistaken:
		return events.ErrTooLarge
	case added:
		return errors.Join(s.Slice.Append(context.WithoutCancel(ctx), stream, after, records...), errPower)
	}
	return s.Slice.Append(ctx, stream, after, records...)
}

// A world is one process with a session in it.
type world struct {
	t       testing.TB
	store   *shaky
	mint    *domain.Mint
	ledger  *events.Ledger
	layers  *registry.Layers
	outputs *drawer
	journal *journal
	as      domain.Invocation
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newProcess(t, &shaky{Slice: eventstest.NewSlice()}, 1)
}

// newProcess starts another process over a store.
func newProcess(t testing.TB, store *shaky, seed byte) *world {
	t.Helper()
	mint := domain.NewMint(time.Now, rand.NewChaCha8([32]byte{seed}))
	w := &world{t: t, store: store, mint: mint, outputs: newDrawer()}
	w.ledger = events.NewLedger(store, mint, time.Now)
	w.layers = registry.NewLayers(w.ledger, mint.Process())
	w.as = domain.Invocation{Session: mint.Session(), Agent: "build", Message: mint.Message()}
	w.journal = newJournal(w.ledger.Writer(events.SessionStream(w.as.Session), 0))
	t.Cleanup(w.checkCalls)
	return w
}

// layer returns the layer that an opening returned, or fails the test.
func (w *world) layer(l *registry.Layer, err error) *registry.Layer {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("open layer = %v, want nil", err)
	}
	return l
}

func (w *world) application() *registry.Layer {
	w.t.Helper()
	return w.layer(w.layers.Application(context.Background()))
}

func (w *world) location(dir string) *registry.Layer {
	w.t.Helper()
	return w.layer(w.layers.Location(context.Background(), dir))
}

// register puts tools into effect in a scope of their own.
func (w *world) register(l *registry.Layer, tools registry.Tools) *registry.Scope {
	w.t.Helper()
	s := l.Scope()
	if err := s.Register(context.Background(), tools); err != nil {
		w.t.Fatalf("Register = %v, want nil", err)
	}
	return s
}

func (w *world) close(c interface{ Close(context.Context) error }) {
	w.t.Helper()
	if err := c.Close(context.Background()); err != nil {
		w.t.Fatalf("Close = %v, want nil", err)
	}
}

func (w *world) registry(c registry.Config, over ...*registry.Layer) *registry.Registry {
	w.t.Helper()
	if c.Outputs == nil {
		c.Outputs = w.outputs
	}
	r, err := w.layers.Registry(c, over...)
	if err != nil {
		w.t.Fatalf("Registry = %v, want nil", err)
	}
	return r
}

func (w *world) materialize(r *registry.Registry, rules ...domain.Rule) *registry.Materialization {
	w.t.Helper()
	m, err := r.Materialize(context.Background(), registry.TurnSpec{ID: w.mint.Turn(), Facts: domain.TurnFacts{Rules: domain.RuleSets{rules}}})
	if err != nil {
		w.t.Fatalf("Materialize = %v, want nil", err)
	}
	return m
}

// offered returns a materialization of one application layer with tools in it.
func (w *world) offered(tools registry.Tools) *registry.Materialization {
	w.t.Helper()
	l := w.application()
	w.register(l, tools)
	return w.materialize(w.registry(registry.Config{}, l))
}

func ask(id, name, input string) domain.Call {
	return domain.Call{ID: domain.CallID(id), Name: name, Input: json.RawMessage(input)}
}

// settle settles a call and fails the test unless the log has the returned settlement.
func (w *world) settle(m *registry.Materialization, id, name, input string) domain.Settlement {
	w.t.Helper()
	return w.settleIn(context.Background(), m, ask(id, name, input))
}

func (w *world) settleIn(ctx context.Context, m *registry.Materialization, call domain.Call) domain.Settlement {
	w.t.Helper()
	got, err := m.Settle(ctx, w.journal, w.as, call)
	if err != nil {
		w.t.Fatalf("Settle(%s %s) = %v, want a settlement", call.ID, call.Name, err)
	}
	for _, v := range w.read(w.journal.writer.Stream()) {
		if v.ID != got.ID {
			continue
		}
		want := v.Event.(events.CallSettled).Settlement(v.ID)
		if diff := cmp.Diff(want.ToolResult(), got.ToolResult(), private, sameBytes); diff != "" {
			w.t.Errorf("Settle(%s %s) reads otherwise than the record (-record +answer):\n%s", call.ID, call.Name, diff)
		}
		if diff := cmp.Diff(want, got, private, sameBytes); diff != "" {
			w.t.Errorf("Settle(%s %s) is not what is on record (-record +answer):\n%s", call.ID, call.Name, diff)
		}
		return got
	}
	w.t.Fatalf("Settle(%s %s) answers %s, which is not on record", call.ID, call.Name, got.ID)
	return got
}

var (
	private   = cmp.Exporter(func(reflect.Type) bool { return true })
	sameBytes = cmp.Comparer(bytes.Equal)
)

func (w *world) want(got domain.Settlement, outcome domain.Outcome, reads string) {
	w.t.Helper()
	reading := got.ToolResult()
	text := reading.Error + reading.Text + string(reading.Structured)
	if got.Outcome != outcome || text != reads {
		w.t.Errorf("settlement = %v reading %q, want %v reading %q", got.Outcome, text, outcome, reads)
	}
}

func (w *world) read(s events.Stream) []events.Envelope {
	w.t.Helper()
	var all []events.Envelope
	for v, err := range w.ledger.Read(context.Background(), s, 0) {
		if err != nil {
			w.t.Fatalf("Read(%s) = %v, want nil", s, err)
		}
		all = append(all, v)
	}
	return all
}

// kinds returns the kinds of the events of a stream.
func (w *world) kinds(s events.Stream) []string {
	w.t.Helper()
	kinds := []string{}
	for _, v := range w.read(s) {
		kinds = append(kinds, v.Event.Kind())
	}
	return kinds
}

func (w *world) wantKinds(s events.Stream, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.kinds(s)); diff != "" {
		w.t.Errorf("events of %s (-want +got):\n%s", s, diff)
	}
}

func (w *world) session() events.Stream { return w.journal.writer.Stream() }

// checkCalls fails the test if the session breaks a law of calls.
func (w *world) checkCalls() {
	type key struct {
		domain.MessageID
		domain.CallID
	}
	started, settled := map[key]events.CallStarted{}, map[key]events.CallSettled{}
	for _, v := range w.read(w.session()) {
		switch e := v.Event.(type) {
		case events.CallStarted:
			k := key{e.Message, e.Call}
			if _, twice := started[k]; twice {
				w.t.Errorf("call %s began twice", e.Call)
			}
			if _, late := settled[k]; late {
				w.t.Errorf("call %s began after its end", e.Call)
			}
			started[k] = e
		case events.CallSettled:
			k := key{e.Message, e.Call}
			if _, twice := settled[k]; twice {
				w.t.Errorf("call %s ended twice", e.Call)
			}
			if _, began := started[k]; began != e.Began {
				w.t.Errorf("call %s ended with began = %t, want %t", e.Call, e.Began, began)
			}
			settled[k] = e
		case events.LateResultObserved:
			if _, ok := settled[key{e.Message, e.Call}]; !ok {
				w.t.Errorf("a late result of %s is on record before its end", e.Call)
			}
		}
	}
}

type callKey struct {
	domain.MessageID
	domain.CallID
}

// A journal records events as a runner's journal does: in the session's stream, through
// its only writer.
type journal struct {
	writer *events.Writer
	begin  func(context.Context) error // before a start is kept; nil: nothing happens
	end    func(context.Context) error // before an end is kept; nil: nothing happens
	mu     struct {
		sync.Mutex
		recorded map[callKey]registry.Recorded
	}
}

func newJournal(w *events.Writer) *journal {
	j := &journal{writer: w}
	j.mu.recorded = map[callKey]registry.Recorded{}
	return j
}

func (j *journal) Recorded(_ context.Context, m domain.MessageID, c domain.CallID) (registry.Recorded, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.recorded[callKey{m, c}], nil
}

// expect sets the record of a call, as another process would have left it.
func (j *journal) expect(m domain.MessageID, r registry.Recorded) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.recorded[callKey{m, r.Call.ID}] = r
}

func (j *journal) Begin(ctx context.Context, start events.Draft) error {
	return j.keep(ctx, start, j.begin)
}

func (j *journal) Settle(ctx context.Context, end events.Draft) error {
	if err := j.keep(ctx, end, j.end); err != nil {
		return err
	}
	e := end.Event.(events.CallSettled)
	settlement := e.Settlement(end.ID)
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.mu.recorded[callKey{e.Message, e.Call}]
	r.Settlement = &settlement
	j.mu.recorded[callKey{e.Message, e.Call}] = r
	return nil
}

func (j *journal) Late(ctx context.Context, late events.Draft) error {
	_, err := j.writer.Append(ctx, late)
	return err
}

func (j *journal) keep(ctx context.Context, d events.Draft, before func(context.Context) error) error {
	if before != nil {
		if err := before(ctx); err != nil {
			return err
		}
	}
	_, err := j.writer.Append(ctx, d)
	return err
}

// A drawer stores outputs in a map.
type drawer struct {
	refuse error // the error of Keep; nil: Keep succeeds
	mu     struct {
		sync.Mutex
		kept      map[domain.Ref][]byte
		confirmed []domain.EventID
	}
}

func newDrawer() *drawer {
	d := &drawer{}
	d.mu.kept = map[domain.Ref][]byte{}
	return d
}

func (d *drawer) Keep(_ context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	data, err := io.ReadAll(r)
	if err != nil || d.refuse != nil {
		return domain.Retained{}, errors.Join(err, d.refuse)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.kept[ref] = data
	sum := sha256.Sum256(data)
	return domain.Retained{
		Ref: ref, Bytes: int64(len(data)), Lines: int64(1 + bytes.Count(data, []byte("\n"))), MIME: mime, SHA256: hex.EncodeToString(sum[:]),
	}, nil
}

func (d *drawer) Confirm(_ context.Context, settlement domain.EventID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.confirmed = append(d.mu.confirmed, settlement)
	return nil
}

// kept returns the stored outputs by channel.
func (d *drawer) kept() map[domain.Channel]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[domain.Channel]string{}
	for ref, data := range d.mu.kept {
		all[ref.Channel()] = string(data)
	}
	return all
}

type empty struct{}

// A probe is a tool that returns a text and counts its runs.
type probe struct {
	domain.Tool
	runs *atomic.Int64
}

func answers(t testing.TB, text string) probe {
	t.Helper()
	runs := new(atomic.Int64)
	return probe{runs: runs, Tool: does(t, func(context.Context, empty, domain.Invocation) (string, error) {
		runs.Add(1)
		return text, nil
	})}
}

func (p probe) ran(t testing.TB, want int64) {
	t.Helper()
	if got := p.runs.Load(); got != want {
		t.Errorf("the tool ran %d times, want %d", got, want)
	}
}

func does[In, Out any](t testing.TB, execute func(context.Context, In, domain.Invocation) (Out, error)) domain.Tool {
	t.Helper()
	return made(t, domain.Spec[In, Out]{Description: "for a test", Execute: execute})
}

func made[In, Out any](t testing.TB, spec domain.Spec[In, Out]) domain.Tool {
	t.Helper()
	spec.Description = "for a test"
	tool, err := domain.Make(spec)
	if err != nil {
		t.Fatalf("Make = %v, want nil", err)
	}
	return tool
}

func names(m *registry.Materialization) []string {
	all := []string{}
	for _, d := range m.Definitions() {
		all = append(all, string(d.Name))
	}
	return all
}

func wantIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}
