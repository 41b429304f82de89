package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// overHistory returns what opens a contestant that does something with a store
// that holds a history, and returns of how many events.
func overHistory(do func(ctx context.Context, s *embedded.Store) (Sample, error)) func(context.Context, *Ground) (Rig, error) {
	return func(ctx context.Context, g *Ground) (Rig, error) {
		dir, err := g.History(ctx)
		if err != nil {
			return nil, err
		}
		s, err := embedded.Open(ctx, dir, embedded.Config{Owner: embedded.Owner{Command: "bench"}})
		if err != nil {
			return nil, err
		}
		return NewRig(func(ctx context.Context) (Sample, error) { return do(ctx, s) }, s.Close), nil
	}
}

// Scanning returns what opens a contestant that reads a history through.
func Scanning[T any](read func(ctx context.Context, s *embedded.Store) iter.Seq2[T, error]) func(context.Context, *Ground) (Rig, error) {
	return overHistory(func(ctx context.Context, s *embedded.Store) (Sample, error) {
		n, begun := 0, time.Now()
		for _, err := range read(ctx, s) {
			if err != nil {
				return nil, err
			}
			n++
		}
		return RateOf(n, time.Since(begun))
	})
}

// RateOf returns the sample of so many events in a time. None is an error: a
// contestant that found nothing is not fast.
func RateOf(n int, elapsed time.Duration) (Sample, error) {
	if n == 0 {
		return nil, errors.New("there was nothing to read")
	}
	return Sample{Rate: float64(n) / elapsed.Seconds(), Each: micros(elapsed) / float64(n)}, nil
}

// ScanHeaders reads the headers of all entries.
func ScanHeaders(ctx context.Context, s *embedded.Store) iter.Seq2[events.Header, error] {
	return events.Headers(ctx, s, events.Query{})
}

// ScanAll reads all entries, whose bytes belong to the reader.
func ScanAll(ctx context.Context, s *embedded.Store) iter.Seq2[events.Entry, error] {
	return s.ReadAll(ctx, events.Position{})
}

// ScanLent reads all entries, whose bytes stay the store's.
func ScanLent(ctx context.Context, s *embedded.Store) iter.Seq2[events.Entry, error] {
	return events.Lend(ctx, s, events.Query{})
}

// rebuild folds the calls of a history on so many cores; 0 means all.
func rebuild(cores int) func(context.Context, *embedded.Store) (Sample, error) {
	return func(ctx context.Context, s *embedded.Store) (Sample, error) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
		begun := time.Now()
		n, err := foldCalls(ctx, s)
		if err != nil {
			return nil, err
		}
		return RateOf(n, time.Since(begun))
	}
}

// foldCalls rebuilds the projection calls from the whole log, and returns of
// how many events.
func foldCalls(ctx context.Context, s *embedded.Store) (int, error) {
	view := projections.NewView(calls.Projection(), events.NewLedger(s, newMint(), time.Now), nil)
	if err := view.Rebuild(ctx, nil); err != nil {
		return 0, err
	}
	var found []calls.Exception
	view.Read(func(state *calls.State) { found = state.Exceptions() })
	if len(found) > 0 {
		return 0, fmt.Errorf("the history breaks a law: %v", found[0])
	}
	end, _ := s.Head().Parts()
	return int(end), nil
}

// decodedAtMost is how many payloads of a history the floor of a rebuild
// decodes. They are all alike, and it is slow.
const decodedAtMost = 250_000

// decodePayloads decodes payloads with encoding/json, one after the other on
// one core. What it takes to read them does not count.
func decodePayloads(ctx context.Context, s *embedded.Store) (Sample, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	n, spent, batch := 0, time.Duration(0), make([]events.Entry, 0, 1024)
	flush := func() error {
		begun := time.Now()
		for _, e := range batch {
			if err := unmarshal(e.Kind, e.Data); err != nil {
				return err
			}
		}
		spent += time.Since(begun)
		n, batch = n+len(batch), batch[:0]
		return nil
	}
	for e, err := range s.ReadAll(ctx, events.Position{}) {
		if err != nil {
			return nil, err
		}
		if batch = append(batch, e); len(batch) == cap(batch) {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if n >= decodedAtMost {
			break
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return RateOf(n, spent)
}

// decoders are the kinds of a history.
var decoders = map[string]func([]byte) error{
	"ProcessStarted":   into[events.ProcessStarted],
	"LayerOpened":      into[events.LayerOpened],
	"ToolsRegistered":  into[events.ToolsRegistered],
	"SessionOpened":    into[events.SessionOpened],
	"PromptAdmitted":   into[events.PromptAdmitted],
	"TurnMaterialized": into[events.TurnMaterialized],
	"ReplyReceived":    into[events.ReplyReceived],
	"CallStarted":      into[events.CallStarted],
	"CallSettled":      into[events.CallSettled],
}

func into[E events.Event](data []byte) error {
	var e E
	return json.Unmarshal(data, &e)
}

func unmarshal(kind string, data []byte) error {
	decode, ok := decoders[kind]
	if !ok {
		return fmt.Errorf("decode %s: the history has no such kind", kind)
	}
	return decode(data)
}
