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

// ErrBroken is the error of the journal while a check makes it fail.
var ErrBroken = errors.New("the journal is broken by the check")

// A Subject is one session of a registry that settles calls: the object of a law. A saboteur
// replaces exported fields by wrappers around the original values.
type Subject struct {
	// Register registers a tool under name in a new scope. It returns the function that
	// closes the scope.
	Register func(ctx context.Context, name string, t domain.Tool) (func(context.Context) error, error)
	// Materialize begins a turn. It records the offer of the turn, and a reply that
	// makes the given calls.
	Materialize func(ctx context.Context, calls ...domain.Call) (*OfferedTurn, error)
	// Settle settles a call of the reply of turn t. Several goroutines may settle one
	// call at once.
	Settle func(ctx context.Context, t *OfferedTurn, call domain.Call) (domain.Settlement, error)
	// Journal records the starts and the ends of calls.
	Journal registry.Journal
	// Outputs stores the outputs that exceed the limits.
	Outputs registry.Outputs

	ledger  *events.Ledger
	session domain.SessionID
	kept    *blobMap // the original Outputs
	faults  faults
}

// An OfferedTurn has the offer and the identity of one turn of the session.
type OfferedTurn struct {
	Materialization *registry.Materialization
	Invocation      domain.Invocation // of each call of the turn; the registry sets its call ID
}

// faults make the journal's Begin or Settle return ErrBroken and append no event. A
// check sets the fields while no call is being settled.
type faults struct{ begin, settle bool }

// Open returns a Subject with the real registry in an opened session. The registry stores
// outputs over limits. The zero Limits are [registry.DefaultLimits].
func Open(ctx context.Context, limits registry.Limits) (*Subject, error) {
	mint := domain.NewMint(time.Now, rand.Reader)
	s := &Subject{ledger: events.NewLedger(eventstest.NewSlice(), mint, time.Now), session: mint.Session(), kept: &blobMap{}}
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
	s.Journal = &journal{subject: s, writer: w, recorded: map[journalKey]registry.Recorded{}}
	s.Register = func(ctx context.Context, name string, t domain.Tool) (func(context.Context) error, error) {
		scope := place.Scope()
		return scope.Close, scope.Register(ctx, registry.Tools{name: t})
	}
	s.Materialize = func(ctx context.Context, calls ...domain.Call) (*OfferedTurn, error) {
		return s.materialize(ctx, r, w, calls)
	}
	s.Settle = func(ctx context.Context, t *OfferedTurn, call domain.Call) (domain.Settlement, error) {
		return t.Materialization.Settle(ctx, s.Journal, t.Invocation, call)
	}
	return s, nil
}

// outputsOf is the output store of the registry. It calls the current Outputs of the Subject,
// which a saboteur may replace after Open.
type outputsOf struct{ *Subject }

func (o outputsOf) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	return o.Outputs.Keep(ctx, ref, mime, r)
}

func (o outputsOf) Confirm(ctx context.Context, id domain.EventID) error {
	return o.Outputs.Confirm(ctx, id)
}

// materialize materializes r for a new turn. It appends the turn, and a reply that
// makes the given calls, with w.
func (s *Subject) materialize(ctx context.Context, r *registry.Registry, w *events.Writer, calls []domain.Call) (*OfferedTurn, error) {
	mint := s.ledger.Mint()
	turn, message := mint.Turn(), mint.Message()
	m, err := r.Materialize(ctx, registry.TurnSpec{ID: turn})
	if err != nil {
		return nil, err
	}
	_, err = w.Append(ctx,
		s.ledger.Draft(events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Tools: m.Offer().Tools}, domain.EventID{}),
		s.ledger.Draft(events.ReplyReceived{Turn: turn, Message: message, Calls: calls}, domain.EventID{}))
	return &OfferedTurn{m, domain.Invocation{Session: s.session, Agent: "build", Message: message}}, err
}

// Log returns all events of the log in the order of their positions.
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

// A journalKey identifies a call: call IDs repeat in other messages.
type journalKey struct {
	message domain.MessageID
	call    domain.CallID
}

// A journal implements [registry.Journal]. It appends starts, ends and late results to the
// session's stream and remembers the record of each call.
type journal struct {
	subject  *Subject // has the faults
	writer   *events.Writer
	mu       sync.Mutex
	recorded map[journalKey]registry.Recorded // guarded by mu
}

// Recorded returns the record of a call, or the zero Recorded.
func (j *journal) Recorded(_ context.Context, message domain.MessageID, call domain.CallID) (registry.Recorded, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.recorded[journalKey{message, call}], nil
}

// Begin records a CallStarted, or returns ErrBroken if faults.begin is set.
func (j *journal) Begin(ctx context.Context, d events.Draft) error {
	if j.subject.faults.begin {
		return ErrBroken
	}
	e := d.Event.(events.CallStarted)
	return j.keep(ctx, d, journalKey{e.Message, e.Call}, func(r *registry.Recorded) { r.Began = true })
}

// Settle records a CallSettled, or returns ErrBroken if faults.settle is set. If no
// check called expect for the call, Settle takes the tool name from the event.
func (j *journal) Settle(ctx context.Context, d events.Draft) error {
	if j.subject.faults.settle {
		return ErrBroken
	}
	e := d.Event.(events.CallSettled)
	end := e.Settlement(d.ID)
	return j.keep(ctx, d, journalKey{e.Message, e.Call}, func(r *registry.Recorded) {
		if r.Settlement = &end; r.Call.Name == "" {
			r.Call.Name = e.Tool
		}
	})
}

// Late appends a late result. The record of the call stays the same.
func (j *journal) Late(ctx context.Context, d events.Draft) error {
	_, err := j.writer.Append(ctx, d)
	return err
}

// keep appends the event d. It then calls note to update the journal's record of call
// k.
func (j *journal) keep(ctx context.Context, d events.Draft, k journalKey, note func(*registry.Recorded)) error {
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

// expect sets the tool name and the input in the journal's record of a call, as the
// reply has them.
func (j *journal) expect(message domain.MessageID, call domain.Call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.recorded[journalKey{message, call.ID}]
	r.Call = call
	j.recorded[journalKey{message, call.ID}] = r
}

// A blobMap is an output store in memory.
type blobMap struct {
	mu   sync.Mutex
	kept map[domain.Ref][]byte // guarded by mu; nil: empty
}

// Keep stores all bytes of r under ref and returns their metadata.
func (k *blobMap) Keep(_ context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
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

// Confirm returns nil and has no effect: a store in memory needs no second phase.
func (k *blobMap) Confirm(context.Context, domain.EventID) error { return nil }

// resolve returns the stored bytes of r. It returns an error if they are missing or have
// another SHA-256 than r.
func (k *blobMap) resolve(r domain.Retained) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	data, ok := k.kept[r.Ref]
	sum := sha256.Sum256(data)
	if !ok || hex.EncodeToString(sum[:]) != r.SHA256 {
		return "", fmt.Errorf("%s does not resolve to what the settlement names", r.Ref)
	}
	return string(data), nil
}
