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

// Each saboteur changes a correct Subject so that it breaks the law that its comment names.

// runTwice settles each call twice, the first time under another call ID. It breaks
// "single executor".
func runTwice(s *Subject) {
	settle := s.Settle
	s.Settle = func(ctx context.Context, t *OfferedTurn, c domain.Call) (domain.Settlement, error) {
		again := c
		again.ID += "'"
		_, err := settle(ctx, t, again)
		end, err2 := settle(ctx, t, c)
		return end, errors.Join(err, err2)
	}
}

// repairInputs replaces an input that cannot be decoded with a valid input. It breaks
// "codec boundary".
func repairInputs(s *Subject) {
	settle := s.Settle
	s.Settle = func(ctx context.Context, t *OfferedTurn, c domain.Call) (domain.Settlement, error) {
		var in echoInput
		if json.Unmarshal(c.Input, &in) != nil {
			c.Input = json.RawMessage(`{"text":"something"}`)
		}
		return settle(ctx, t, c)
	}
}

// otherAgent settles calls in the name of another agent. It breaks "durable identity".
func otherAgent(s *Subject) {
	settle := s.Settle
	s.Settle = func(ctx context.Context, t *OfferedTurn, c domain.Call) (domain.Settlement, error) {
		other := *t
		other.Invocation.Agent = "another"
		return settle(ctx, &other, c)
	}
}

// closeNothing returns from Register a function that leaves the scope open. It breaks "scoped
// registration".
func closeNothing(s *Subject) {
	register := s.Register
	s.Register = func(ctx context.Context, name string, t domain.Tool) (func(context.Context) error, error) {
		_, err := register(ctx, name, t)
		return func(context.Context) error { return nil }, err
	}
}

// closeCancels cancels all running calls when a scope closes. It breaks "captured execution".
func closeCancels(s *Subject) {
	var mu sync.Mutex
	var running []context.CancelFunc // guarded by mu
	register, settle := s.Register, s.Settle
	s.Register = func(ctx context.Context, name string, t domain.Tool) (func(context.Context) error, error) {
		unregister, err := register(ctx, name, t)
		return func(ctx context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			for _, cancel := range running {
				cancel()
			}
			return unregister(ctx)
		}, err
	}
	s.Settle = func(ctx context.Context, t *OfferedTurn, c domain.Call) (domain.Settlement, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		mu.Lock()
		running = append(running, cancel)
		mu.Unlock()
		return settle(ctx, t, c)
	}
}

// offerAfresh settles a call under a new materialization instead of the one of its turn. It
// breaks "stale rejection".
func offerAfresh(s *Subject) {
	settle := s.Settle
	s.Settle = func(ctx context.Context, t *OfferedTurn, c domain.Call) (domain.Settlement, error) {
		now, err := s.Materialize(ctx)
		if err != nil {
			return domain.Settlement{}, err
		}
		return settle(ctx, now, c)
	}
}

// A rewriter is a journal whose Begin and Settle a saboteur replaces.
type rewriter struct {
	registry.Journal
	begin  func(context.Context, events.Draft) error // nil: Begin of Journal
	settle func(context.Context, events.Draft) error // nil: Settle of Journal
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

// A forgetful journal reports no start and no end of any call.
type forgetful struct{ registry.Journal }

// Recorded returns the zero Recorded for every call.
func (forgetful) Recorded(context.Context, domain.MessageID, domain.CallID) (registry.Recorded, error) {
	return registry.Recorded{}, nil
}

// forget makes the journal forget its records. It breaks "begins at most once".
func forget(s *Subject) { s.Journal = forgetful{s.Journal} }

// endTwice records each end under two event IDs. It breaks "ends exactly once".
func endTwice(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, settle: func(ctx context.Context, d events.Draft) error {
		second := d
		second.ID = s.ledger.Mint().Event()
		return errors.Join(honest.Settle(ctx, d), honest.Settle(ctx, second))
	}}
}

// hideBeginFault ignores errors of the journal's Begin. It breaks "start before run".
func hideBeginFault(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, begin: func(ctx context.Context, d events.Draft) error {
		_ = honest.Begin(ctx, d)
		return nil
	}}
}

// hideSettleFault ignores errors of the journal's Settle. It breaks "end before answer".
func hideSettleFault(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, settle: func(ctx context.Context, d events.Draft) error {
		_ = honest.Settle(ctx, d)
		return nil
	}}
}

// denyBegun clears Began in the recorded end of each call. It breaks "begun is on
// record".
func denyBegun(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, settle: func(ctx context.Context, d events.Draft) error {
		e := d.Event.(events.CallSettled)
		e.Began = false
		d.Event = e
		return honest.Settle(ctx, d)
	}}
}

// startUnderAnother records each start under a registration that does not exist. It breaks
// "runs what was offered".
func startUnderAnother(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, begin: func(ctx context.Context, d events.Draft) error {
		e := d.Event.(events.CallStarted)
		e.Effective.Registration = domain.RegistrationOf(s.ledger.Mint().Event())
		d.Event = e
		return honest.Begin(ctx, d)
	}}
}

// loseEnds discards each end and reports success. It breaks "open or ended once".
func loseEnds(s *Subject) {
	s.Journal = rewriter{Journal: s.Journal, settle: func(context.Context, events.Draft) error { return nil }}
}

// anotherTurn records each end under a turn that does not exist. It breaks "settlements name
// their turn".
func anotherTurn(s *Subject) {
	honest := s.Journal
	s.Journal = rewriter{Journal: honest, settle: func(ctx context.Context, d events.Draft) error {
		e := d.Event.(events.CallSettled)
		e.Turn = s.ledger.Mint().Turn()
		d.Event = e
		return honest.Settle(ctx, d)
	}}
}

// readOtherwise adds a text to a settlement after it was recorded. It breaks "presentation is
// pure".
func readOtherwise(s *Subject) {
	settle := s.Settle
	s.Settle = func(ctx context.Context, t *OfferedTurn, c domain.Call) (domain.Settlement, error) {
		end, err := settle(ctx, t, c)
		end.Content = append(domain.Contents{domain.Text("today: ")}, end.Content...)
		return end, err
	}
}

// A cutting output store stores the first 100 bytes of an output and reports them as the
// whole.
type cutting struct{ registry.Outputs }

// Keep stores the first 100 bytes of r and returns their metadata.
func (c cutting) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	return c.Outputs.Keep(ctx, ref, mime, io.LimitReader(r, 100))
}

// keepLess truncates stored outputs. It breaks "storage encapsulation".
func keepLess(s *Subject) { s.Outputs = cutting{s.Outputs} }

// A losing output store discards each output and reports success with a wrong SHA-256.
type losing struct{ registry.Outputs }

// Keep reads and discards r. Its metadata has the size of r and a SHA-256 of zeros.
func (losing) Keep(_ context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	n, err := io.Copy(io.Discard, r)
	return domain.Retained{Ref: ref, Bytes: n, MIME: mime, SHA256: strings.Repeat("0", 64)}, err
}

// keepNothing discards outputs. It breaks "references resolve".
func keepNothing(s *Subject) { s.Outputs = losing{s.Outputs} }
