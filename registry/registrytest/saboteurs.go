package registrytest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// Each saboteur breaks one law of a Subject.

func runTwice(s *Subject) {
	settle := s.Settle
	s.Settle = func(ctx context.Context, t *Turn, c domain.Call) (domain.Settlement, error) {
		again := c
		again.ID += "'"
		_, err := settle(ctx, t, again)
		end, err2 := settle(ctx, t, c)
		return end, errors.Join(err, err2)
	}
}

func mendInputs(s *Subject) {
	settle := s.Settle
	s.Settle = func(ctx context.Context, t *Turn, c domain.Call) (domain.Settlement, error) {
		var in saying
		if json.Unmarshal(c.Input, &in) != nil {
			c.Input = json.RawMessage(`{"text":"something"}`)
		}
		return settle(ctx, t, c)
	}
}

func otherAgent(s *Subject) {
	settle := s.Settle
	s.Settle = func(ctx context.Context, t *Turn, c domain.Call) (domain.Settlement, error) {
		other := *t
		other.Invocation.Agent = "another"
		return settle(ctx, &other, c)
	}
}

func closeNothing(s *Subject) {
	register := s.Register
	s.Register = func(ctx context.Context, name string, t domain.Tool) (func(context.Context) error, error) {
		_, err := register(ctx, name, t)
		return func(context.Context) error { return nil }, err
	}
}

// closeCancels ends the calls that run when a scope closes.
func closeCancels(s *Subject) {
	var mu sync.Mutex
	var running []context.CancelFunc
	register, settle := s.Register, s.Settle
	s.Register = func(ctx context.Context, name string, t domain.Tool) (func(context.Context) error, error) {
		shut, err := register(ctx, name, t)
		return func(ctx context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			for _, cancel := range running {
				cancel()
			}
			return shut(ctx)
		}, err
	}
	s.Settle = func(ctx context.Context, t *Turn, c domain.Call) (domain.Settlement, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		mu.Lock()
		running = append(running, cancel)
		mu.Unlock()
		return settle(ctx, t, c)
	}
}

// offerAfresh settles against what is in effect now.
func offerAfresh(s *Subject) {
	settle := s.Settle
	s.Settle = func(ctx context.Context, t *Turn, c domain.Call) (domain.Settlement, error) {
		now, err := s.Materialize(ctx)
		if err != nil {
			return domain.Settlement{}, err
		}
		return settle(ctx, now, c)
	}
}

// A rewriter changes what goes into a journal.
type rewriter struct {
	registry.Journal
	begin  func(context.Context, events.Draft) error
	settle func(context.Context, events.Draft) error
}

func (r rewriter) Begin(ctx context.Context, d events.Draft) error {
	if r.begin != nil {
		return r.begin(ctx, d)
	}
	return r.Journal.Begin(ctx, d)
}

func (r rewriter) Settle(ctx context.Context, d events.Draft) error {
	if r.settle != nil {
		return r.settle(ctx, d)
	}
	return r.Journal.Settle(ctx, d)
}

// A forgetful journal finds nothing on record.
type forgetful struct{ registry.Journal }

func (forgetful) Recorded(context.Context, domain.MessageID, domain.CallID) (registry.Recorded, error) {
	return registry.Recorded{}, nil
}

func forget(s *Subject) { s.Journal = forgetful{s.Journal} }

func endTwice(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, settle: func(ctx context.Context, d events.Draft) error {
		second := d
		second.ID = s.ledger.Mint().Event()
		return errors.Join(honest.Settle(ctx, d), honest.Settle(ctx, second))
	}}
}

func hideBeginFault(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, begin: func(ctx context.Context, d events.Draft) error {
		_ = honest.Begin(ctx, d)
		return nil
	}}
}

func hideSettleFault(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, settle: func(ctx context.Context, d events.Draft) error {
		_ = honest.Settle(ctx, d)
		return nil
	}}
}

func denyBegun(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, settle: func(ctx context.Context, d events.Draft) error {
		e := d.Event.(events.CallSettled)
		e.Began = false
		d.Event = e
		return honest.Settle(ctx, d)
	}}
}

func startUnderAnother(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, begin: func(ctx context.Context, d events.Draft) error {
		e := d.Event.(events.CallStarted)
		e.Effective.Registration = domain.RegistrationOf(s.ledger.Mint().Event())
		d.Event = e
		return honest.Begin(ctx, d)
	}}
}

func loseEnds(s *Subject) {
	s.Journal = rewriter{Journal: s.Journal, settle: func(context.Context, events.Draft) error { return nil }}
}

// anotherTurn records ends as those of a turn that never was.
func anotherTurn(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, settle: func(ctx context.Context, d events.Draft) error {
		e := d.Event.(events.CallSettled)
		e.Turn = s.ledger.Mint().Turn()
		d.Event = e
		return honest.Settle(ctx, d)
	}}
}

func readOtherwise(s *Subject) {
	settle := s.Settle
	s.Settle = func(ctx context.Context, t *Turn, c domain.Call) (domain.Settlement, error) {
		end, err := settle(ctx, t, c)
		end.Content = append(domain.Contents{domain.Text("today: ")}, end.Content...)
		return end, err
	}
}

// A cutting store keeps the beginning of an output and calls it all.
type cutting struct{ registry.Outputs }

func (c cutting) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	return c.Outputs.Keep(ctx, ref, mime, io.LimitReader(r, 100))
}

func keepLess(s *Subject) { s.Outputs = cutting{s.Outputs} }

// A losing store says that it keeps what it does not.
type losing struct{ registry.Outputs }

func (losing) Keep(_ context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	n, err := io.Copy(io.Discard, r)
	return domain.Retained{Ref: ref, Bytes: n, MIME: mime, SHA256: strings.Repeat("0", 64)}, err
}

func keepNothing(s *Subject) { s.Outputs = losing{s.Outputs} }
