package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/registry"
)

// A dataSet is the folder of a closed store with test data, which a run makes once.
// Contestants get copies of it.
type dataSet struct{ dir string }

// copyOf returns a folder with a copy of the data set name, for the contestant of g. The
// first call for a name creates the data set: it opens a new store and calls the
// function make to fill the store.
func (g *Ground) copyOf(ctx context.Context, name string, make func(ctx context.Context, s *embedded.Store) error) (string, error) {
	set, ok := g.bench.made[name]
	if !ok {
		set = &dataSet{filepath.Join(g.bench.dir, "sets", name)}
		g.bench.progress("make the data set " + name)
		if err := built(ctx, set.dir, make); err != nil {
			return "", fmt.Errorf("make data set %s: %w", name, err)
		}
		g.bench.made[name] = set
	}
	dir, err := os.MkdirTemp(g.Dir, name+"-")
	if err != nil {
		return "", err
	}
	return dir, linkFolder(set.dir, dir)
}

// built opens a new store in dir, calls make to fill it, and closes it.
func built(ctx context.Context, dir string, make func(ctx context.Context, s *embedded.Store) error) error {
	s, err := embedded.Open(ctx, dir, embedded.Config{Owner: storedir.Owner{Command: "bench"}})
	if err != nil {
		return err
	}
	return errors.Join(make(ctx, s), s.Close())
}

// History returns a folder of this contestant with a closed store of a million
// events, scaled: sessions with turns, replies and calls.
func (g *Ground) History(ctx context.Context) (string, error) {
	n := g.Count(1_000_000)
	return g.copyOf(ctx, "history", func(ctx context.Context, s *embedded.Store) error { return makeHistory(ctx, s, n) })
}

// sessionLength is the approximate number of events in a session of a history.
const sessionLength = 512

// makeHistory appends sessions from four goroutines until the sessions have at least n
// events in total. The events keep every law of calls, such as one settlement for
// each call.
func makeHistory(ctx context.Context, s *embedded.Store, n int) error {
	l := events.NewLedger(s, newMint(), time.Now)
	offer, process, err := equip(ctx, l)
	if err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(int64(n))
	const hands = 4
	faults := make([]error, hands)
	var working sync.WaitGroup
	for hand := range hands {
		rng := rand.New(rand.NewPCG(uint64(hand), 7))
		working.Go(func() {
			for faults[hand] == nil && left.Add(-sessionLength) > -sessionLength {
				t := &sessionGenerator{ledger: l, offer: offer, process: process, rng: rng}
				faults[hand] = t.keep(ctx)
			}
		})
	}
	working.Wait()
	return errors.Join(faults...)
}

// An argument is the input type of the tools of a history.
type argument struct {
	Path  string `json:"path"`
	Lines int    `json:"lines"`
}

// equip records a process and registers the tools of a history. It returns the offer
// of a turn and the ID of the process.
func equip(ctx context.Context, l *events.Ledger) ([]domain.Offered, domain.ProcessID, error) {
	process := l.Mint().Process()
	started := events.ProcessStarted{Process: process, Host: "here", PID: 1, Program: "ledger", Version: "1"}
	if _, err := l.Append(ctx, events.ProcessStream(process), 0, l.Draft(started, domain.EventID{})); err != nil {
		return nil, process, err
	}
	layers := registry.NewLayers(l, process)
	application, err := layers.Application(ctx)
	if err != nil {
		return nil, process, err
	}
	tool, err := domain.Make(domain.Spec[argument, string]{
		Description: "Reads a file under the workspace, or a part of it.",
		Execute:     func(context.Context, argument, domain.Invocation) (string, error) { return "", nil },
	})
	if err != nil {
		return nil, process, err
	}
	if err := application.Scope().Register(ctx, registry.Tools{"read": tool, "write": tool, "bash": tool}); err != nil {
		return nil, process, err
	}
	r, err := layers.Registry(registry.Config{}, application)
	if err != nil {
		return nil, process, err
	}
	turn, err := r.Materialize(ctx, registry.TurnSpec{ID: l.Mint().Turn()})
	if err != nil {
		return nil, process, err
	}
	return turn.Offer().Tools, process, nil
}

// A sessionGenerator generates one session of a history. One goroutine uses it.
type sessionGenerator struct {
	ledger  *events.Ledger
	offer   []domain.Offered
	process domain.ProcessID
	rng     *rand.Rand
	drafts  []events.Draft // the events of the session so far
}

// keep generates the session and appends it in one append.
func (t *sessionGenerator) keep(ctx context.Context) error {
	mint := t.ledger.Mint()
	session := mint.Session()
	t.add(events.SessionOpened{
		Session: session, Agent: "build", Location: "/home/ada/project", Model: "m-1", Origin: events.Origin{Kind: events.RunHere},
	})
	t.add(events.PromptAdmitted{Message: mint.Message(), Text: "Find out why the build fails, and " + t.text(80)})
	for len(t.drafts) < sessionLength {
		t.turn()
	}
	_, err := t.ledger.Append(ctx, events.SessionStream(session), 0, t.drafts...)
	return err
}

// add drafts the event e. The cause of e is the event drafted before it.
func (t *sessionGenerator) add(e events.Event) {
	cause := domain.EventID{}
	if len(t.drafts) > 0 {
		cause = t.drafts[len(t.drafts)-1].ID
	}
	t.drafts = append(t.drafts, t.ledger.Draft(e, cause))
}

// turn drafts a turn: the offer of tools, a reply with three calls, and their
// settlements.
func (t *sessionGenerator) turn() {
	mint := t.ledger.Mint()
	turn, message := mint.Turn(), mint.Message()
	t.add(events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Model: "m-1", Tools: t.offer})
	calls := make([]domain.Call, 3)
	for i := range calls {
		calls[i] = domain.Call{
			ID: domain.CallID(fmt.Sprintf("call_%08x", t.rng.Uint32())), Name: string(t.offer[t.rng.IntN(len(t.offer))].Name),
			Input: fmt.Appendf(nil, `{"path":"src/%08x.go","lines":%d}`, t.rng.Uint32(), t.rng.IntN(1000)),
		}
	}
	t.add(events.ReplyReceived{
		Turn: turn, Message: message, Text: t.text(60), Calls: calls, Model: "m-1",
		Tokens: events.Tokens{Input: t.rng.Int64N(1e5), Output: t.rng.Int64N(1e3)}, Finish: "tool_calls",
	})
	for _, c := range calls {
		t.call(turn, message, c)
	}
}

// call drafts the start and the settlement of one call.
func (t *sessionGenerator) call(turn domain.TurnID, message domain.MessageID, c domain.Call) {
	offered, _ := domain.Offer{Tools: t.offer}.Find(c.Name)
	t.add(events.CallStarted{
		Turn: turn, Message: message, Call: c.ID, Tool: c.Name, Offered: offered, Effective: offered, Process: t.process,
	})
	t.add(events.Settled(turn, message, c, domain.Settlement{
		Outcome: domain.Succeeded, Began: true, Offered: offered, Effective: offered,
		Structured: fmt.Appendf(nil, "%q", t.text(40+t.rng.IntN(160))),
	}))
}

// text returns at least size bytes of words.
func (t *sessionGenerator) text(size int) string {
	b := make([]byte, 0, size+16)
	for len(b) < size {
		b = append(append(b, words[t.rng.IntN(len(words))]...), ' ')
	}
	return string(b)
}

// plain returns a folder of this contestant with a closed store of n events of 100
// bytes.
func (g *Ground) plain(ctx context.Context, name string, n int) (string, error) {
	return g.copyOf(ctx, name, func(ctx context.Context, s *embedded.Store) error { return makePlain(ctx, s, n) })
}

// makePlain appends n events of 100 bytes in batches of up to 4096. Each batch is a new
// stream.
func makePlain(ctx context.Context, s *embedded.Store, n int) error {
	mint := newMint()
	data := jsonOf(rand.New(rand.NewPCG(3, 4)), 140)[:100] // cut off inside the JSON; no reader decodes it
	for left := n; left > 0; {
		records := make([]events.Record, min(left, 4096))
		for i := range records {
			records[i] = events.Record{ID: mint.Event(), Kind: "CallSettled", Version: 1, Time: now(), Data: data}
		}
		if err := s.Append(ctx, events.SessionStream(mint.Session()), 0, records...); err != nil {
			return err
		}
		left -= len(records)
	}
	return nil
}
