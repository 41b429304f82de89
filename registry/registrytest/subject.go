package registrytest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
)

// ErrBroken is what a journal returns that a check broke.
var ErrBroken = errors.New("the journal is broken by the check")

// A Subject is what laws are checked against: one session that settles calls.
// Its functions may be replaced, each by one that calls the one before.
type Subject struct {
	// Register puts a tool into effect in a scope of its own, and returns what
	// closes that.
	Register func(ctx context.Context, name string, t domain.Tool) (func(context.Context) error, error)
	// Materialize takes a turn whose reply asks for calls, and records both.
	Materialize func(ctx context.Context, calls ...domain.Call) (*Turn, error)
	// Settle settles one of those calls.
	Settle func(ctx context.Context, t *Turn, call domain.Call) (domain.Settlement, error)
	// Journal is where the facts of calls go.
	Journal registry.Journal
	// Outputs is where complete outputs go.
	Outputs registry.Outputs

	ledger  *events.Ledger
	session domain.SessionID
	kept    *shelf
	faults  faults
}

// A Turn is what one reply may call.
type Turn struct {
	Materialization *registry.Materialization
	Invocation      domain.Invocation // of its calls, but for the call
}

// faults say what a check broke in the journal.
type faults struct{ begin, settle bool }

// Open returns a Subject with the real registry. Limits are those of its
// outputs; zero is the default.
func Open(ctx context.Context, limits registry.Limits) (*Subject, error) {
	mint := domain.NewMint(time.Now, rand.Reader)
	s := &Subject{ledger: events.NewLedger(eventstest.NewSlice(), mint, time.Now), session: mint.Session(), kept: &shelf{}}
	s.Outputs = s.kept
	layers := registry.NewLayers(s.ledger, mint.Process())
	place, err := layers.Location(ctx, "/here")
	if err != nil {
		return nil, err
	}
	r, err := layers.Registry(registry.Config{Outputs: outputsOf{s}, Limits: limits}, place)
	if err != nil {
		return nil, err
	}
	w := s.ledger.Writer(events.SessionStream(s.session), 0)
	opened := events.SessionOpened{Session: s.session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}}
	if _, err := w.Append(ctx, s.ledger.Draft(opened, domain.EventID{})); err != nil {
		return nil, err
	}
	s.Journal = &journal{subject: s, writer: w, recorded: map[key]registry.Recorded{}}
	s.Register = func(ctx context.Context, name string, t domain.Tool) (func(context.Context) error, error) {
		scope := place.Scope()
		return scope.Close, scope.Register(ctx, registry.Tools{name: t})
	}
	s.Materialize = func(ctx context.Context, calls ...domain.Call) (*Turn, error) {
		return s.materialize(ctx, r, w, calls)
	}
	s.Settle = func(ctx context.Context, t *Turn, call domain.Call) (domain.Settlement, error) {
		return t.Materialization.Settle(ctx, s.Journal, t.Invocation, call)
	}
	return s, nil
}

// outputsOf lets the Outputs of a Subject be replaced after it was opened.
type outputsOf struct{ *Subject }

func (o outputsOf) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	return o.Outputs.Keep(ctx, ref, mime, r)
}

func (o outputsOf) Confirm(ctx context.Context, id domain.EventID) error {
	return o.Outputs.Confirm(ctx, id)
}

func (s *Subject) materialize(ctx context.Context, r *registry.Registry, w *events.Writer, calls []domain.Call) (*Turn, error) {
	mint := s.ledger.Mint()
	turn, message := mint.Turn(), mint.Message()
	m, err := r.Materialize(ctx, registry.TurnSpec{ID: turn})
	if err != nil {
		return nil, err
	}
	_, err = w.Append(ctx,
		s.ledger.Draft(events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Tools: m.Offer().Tools}, domain.EventID{}),
		s.ledger.Draft(events.ReplyReceived{Turn: turn, Message: message, Calls: calls}, domain.EventID{}))
	return &Turn{m, domain.Invocation{Session: s.session, Agent: "build", Message: message}}, err
}

// Log returns everything on record, in order.
func (s *Subject) Log(ctx context.Context) ([]events.Envelope, error) {
	var all []events.Envelope
	for v, err := range s.ledger.ReadAll(ctx, events.Position{}) {
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

type key struct {
	message domain.MessageID
	call    domain.CallID
}

// A journal keeps the facts of calls in the session's stream.
type journal struct {
	subject  *Subject
	writer   *events.Writer
	mu       sync.Mutex
	recorded map[key]registry.Recorded
}

func (j *journal) Recorded(_ context.Context, message domain.MessageID, call domain.CallID) (registry.Recorded, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.recorded[key{message, call}], nil
}

func (j *journal) Begin(ctx context.Context, d events.Draft) error {
	if j.subject.faults.begin {
		return ErrBroken
	}
	e := d.Event.(events.CallStarted)
	return j.keep(ctx, d, key{e.Message, e.Call}, func(r *registry.Recorded) { r.Began = true })
}

func (j *journal) Settle(ctx context.Context, d events.Draft) error {
	if j.subject.faults.settle {
		return ErrBroken
	}
	e := d.Event.(events.CallSettled)
	end := e.Settlement(d.ID)
	return j.keep(ctx, d, key{e.Message, e.Call}, func(r *registry.Recorded) {
		if r.Settlement = &end; r.Call.Name == "" {
			r.Call.Name = e.Tool
		}
	})
}

func (j *journal) Late(ctx context.Context, d events.Draft) error {
	_, err := j.writer.Append(ctx, d)
	return err
}

func (j *journal) keep(ctx context.Context, d events.Draft, k key, note func(*registry.Recorded)) error {
	if _, err := j.writer.Append(ctx, d); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.recorded[k]
	note(&r)
	j.recorded[k] = r
	return nil
}

// expect makes the journal answer for a call with the input asked for.
func (j *journal) expect(message domain.MessageID, call domain.Call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.recorded[key{message, call.ID}]
	r.Call = call
	j.recorded[key{message, call.ID}] = r
}

// A shelf keeps outputs in memory.
type shelf struct {
	mu   sync.Mutex
	kept map[domain.Ref][]byte
}

// Keep keeps all that r yields.
func (k *shelf) Keep(_ context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return domain.Retained{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = map[domain.Ref][]byte{}
	}
	k.kept[ref] = data
	sum := sha256.Sum256(data)
	return domain.Retained{
		Ref: ref, Bytes: int64(len(data)), Lines: 1 + int64(bytes.Count(data, []byte("\n"))), MIME: mime, SHA256: hex.EncodeToString(sum[:]),
	}, nil
}

// Confirm does nothing: nothing here outlives the check.
func (k *shelf) Confirm(context.Context, domain.EventID) error { return nil }

// resolve returns what is kept, if it is what the settlement names.
func (k *shelf) resolve(r domain.Retained) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	data, ok := k.kept[r.Ref]
	sum := sha256.Sum256(data)
	if !ok || hex.EncodeToString(sum[:]) != r.SHA256 {
		return "", fmt.Errorf("%s does not resolve to what the settlement names", r.Ref)
	}
	return string(data), nil
}
