package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// settling returns the Open function of a contestant with many sessions. In each
// round every session settles one call of a no-op tool after another for a second,
// scaled.
func settling(sessions int) func(context.Context, *Ground) (Rig, error) {
	return func(ctx context.Context, g *Ground) (Rig, error) {
		l, err := openLedger(ctx, g, 0)
		if err != nil {
			return nil, err
		}
		s, err := newSettler(ctx, l, sessions)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		d := newDriver(s, sessions)
		return NewRig(func(ctx context.Context) (Sample, error) { return d.run(ctx, timed(g.span(time.Second))) }, l.Close), nil
	}
}

// pairing returns the Open function of a contestant with many writers, which append the
// bytes of settlements without making any: in each round every writer appends two records
// in series, of the size of a start and of its settlement, one pair after another for a
// second, scaled.
func pairing(writers int) func(context.Context, *Ground) (Rig, error) {
	return Appending(writers, func(ctx context.Context, g *Ground, writers int) (Appender, error) {
		l, err := openLedger(ctx, g, writers)
		if err != nil {
			return nil, err
		}
		p := &pairs{ledger: l}
		if err := p.measure(ctx); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		return p, nil
	})
}

// A pairs is the embedded store as an Appender that appends two records for each event,
// in series.
type pairs struct {
	*ledger
	events [2][][]byte // of the two sizes
}

// measure settles a call, and makes the events of the sizes of its two records.
func (p *pairs) measure(ctx context.Context) error {
	s, err := newSettler(ctx, p.ledger, 1)
	if err == nil {
		err = s.Append(ctx, 0, 1, nil)
	}
	if err != nil {
		return err
	}
	i := 0
	for e, err := range p.store.Read(ctx, events.SessionStream(s.agents[0].Session), 0) {
		if err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		for range pool() {
			p.events[i] = append(p.events[i], jsonOf(rng, len(e.Data)+len(e.Metadata)))
		}
		i++
	}
	return nil
}

// Append appends pair n of a writer, and ignores the event.
func (p *pairs) Append(ctx context.Context, writer, n int, _ []byte) error {
	for i, all := range p.events {
		if err := p.ledger.Append(ctx, writer, 2*n-1+i, all[(writer*61+n)%len(all)]); err != nil {
			return err
		}
	}
	return nil
}

// A settler is an Appender whose Append settles one call of a session. Each writer has a
// session of its own.
type settler struct {
	turn     *registry.Materialization // offers the no-op tool to all sessions
	mint     *domain.Mint
	agents   []domain.Invocation // one for each session
	journals []*settlerJournal   // one for each session
}

// newSettler registers the no-op tool in l and returns a settler with new sessions. The
// settler does not close l; the caller does.
func newSettler(ctx context.Context, l *ledger, sessions int) (*settler, error) {
	typed := events.NewLedger(l.store, l.mint, time.Now)
	layers := registry.NewLayers(typed, l.mint.Process())
	application, err := layers.Application(ctx)
	if err != nil {
		return nil, err
	}
	noop, err := domain.Make(domain.Spec[struct{}, string]{
		Description: "Does nothing.",
		Execute:     func(context.Context, struct{}, domain.Invocation) (string, error) { return "", nil },
	})
	if err != nil {
		return nil, err
	}
	if err := application.Scope().Register(ctx, registry.Tools{"noop": noop}); err != nil {
		return nil, err
	}
	r, err := layers.Registry(registry.Config{}, application)
	if err != nil {
		return nil, err
	}
	s := &settler{mint: l.mint}
	if s.turn, err = r.Materialize(ctx, registry.TurnSpec{ID: l.mint.Turn()}); err != nil {
		return nil, err
	}
	for range sessions {
		id := l.mint.Session()
		s.agents = append(s.agents, domain.Invocation{Session: id, Agent: "build"})
		s.journals = append(s.journals, newJournal(typed.Writer(events.SessionStream(id), 0)))
	}
	return s, nil
}

// Append settles a call in a new reply of the session.
func (s *settler) Append(ctx context.Context, session, n int, _ []byte) error {
	as := s.agents[session]
	as.Message = s.mint.Message()
	call := domain.Call{ID: domain.CallID(fmt.Sprintf("call_%d", n)), Name: "noop", Input: []byte("{}")}
	settled, err := s.turn.Settle(ctx, s.journals[session], as, call)
	if err == nil && settled.Outcome != domain.Succeeded {
		err = fmt.Errorf("call %s ended as %s: %s", call.ID, settled.Outcome, settled.Text)
	}
	return err
}

// Close does nothing: the caller of newSettler closes the ledger.
func (s *settler) Close() error { return nil }

// A settlerJournal is a registry.Journal that writes as the journal of the runner does.
// It appends to the stream of the session through the only writer of that stream, and
// caches the recorded calls of the latest reply.
type settlerJournal struct {
	writer *events.Writer
	mu     struct {
		sync.Mutex
		reply    domain.MessageID // the reply that recorded is of
		recorded map[domain.CallID]registry.Recorded
	}
}

// newJournal returns a journal that appends through w.
func newJournal(w *events.Writer) *settlerJournal {
	j := &settlerJournal{writer: w}
	j.mu.recorded = map[domain.CallID]registry.Recorded{}
	return j
}

// Recorded returns the recorded state of a call. A new reply clears the cache.
func (j *settlerJournal) Recorded(_ context.Context, m domain.MessageID, c domain.CallID) (registry.Recorded, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m != j.mu.reply {
		j.mu.reply = m
		clear(j.mu.recorded)
	}
	return j.mu.recorded[c], nil
}

// note changes the cached state of a call.
func (j *settlerJournal) note(c domain.CallID, change func(*registry.Recorded)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.mu.recorded[c]
	change(&r)
	j.mu.recorded[c] = r
}

// Begin appends the start of a call.
func (j *settlerJournal) Begin(ctx context.Context, start events.Draft) error {
	e := start.Event.(events.CallStarted)
	j.note(e.Call, func(r *registry.Recorded) { r.Began = true })
	_, err := j.writer.Append(ctx, start)
	return err
}

// Settle appends the settlement of a call and caches it.
func (j *settlerJournal) Settle(ctx context.Context, end events.Draft) error {
	if _, err := j.writer.Append(ctx, end); err != nil {
		return err
	}
	e := end.Event.(events.CallSettled)
	settlement := e.Settlement(end.ID)
	j.note(e.Call, func(r *registry.Recorded) { r.Settlement = &settlement })
	return nil
}

// Late appends a result that arrived after the settlement.
func (j *settlerJournal) Late(ctx context.Context, late events.Draft) error {
	_, err := j.writer.Append(ctx, late)
	return err
}
