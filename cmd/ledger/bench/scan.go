package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/projections/index"
)

// overHistory returns the Open function of a contestant that calls do on an open
// copy of the history in each round.
func overHistory(do func(ctx context.Context, s *embedded.Store) (Sample, error)) func(context.Context, *Ground) (Rig, error) {
	return func(ctx context.Context, g *Ground) (Rig, error) {
		dir, err := g.History(ctx)
		if err != nil {
			return nil, err
		}
		s, err := embedded.Open(ctx, dir, embedded.Config{Owner: storedir.Owner{Command: "bench"}})
		if err != nil {
			return nil, err
		}
		return NewRig(func(ctx context.Context) (Sample, error) { return do(ctx, s) }, s.Close), nil
	}
}

// Scanning returns the Open function of a contestant that iterates over the history
// in each round and measures the rate.
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

// RateOf returns the rate of n events in a duration as a sample. Zero events are an
// error, as a contestant that found no event is not fast.
func RateOf(n int, elapsed time.Duration) (Sample, error) {
	if n == 0 {
		return nil, errors.New("there was nothing to read")
	}
	return Sample{Rate: float64(n) / elapsed.Seconds(), Each: micros(elapsed) / float64(n)}, nil
}

// ScanHeaders iterates over the headers of all records.
func ScanHeaders(ctx context.Context, s *embedded.Store) iter.Seq2[events.Header, error] {
	return events.Headers(ctx, s, events.Query{})
}

// ScanAll iterates over all entries. The caller owns their bytes.
func ScanAll(ctx context.Context, s *embedded.Store) iter.Seq2[events.Entry, error] {
	return s.ReadAll(ctx, events.Position{})
}

// ScanLent iterates over all entries. The store owns their bytes; they are valid
// until the next iteration.
func ScanLent(ctx context.Context, s *embedded.Store) iter.Seq2[events.Entry, error] {
	return events.Lend(ctx, s, events.Query{})
}

// An indexing is index.Index.RebuildWithText or RebuildWithoutText.
type indexing func(*index.Index, context.Context, *events.Ledger, func(index.Progress)) error

// rebuild returns the Open function of a contestant that fills a new index in each round,
// with GOMAXPROCS set to cores. If cores is 0 it leaves GOMAXPROCS unchanged.
func rebuild(cores int, fill indexing) func(context.Context, *Ground) (Rig, error) {
	return func(ctx context.Context, g *Ground) (Rig, error) {
		return overHistory(func(ctx context.Context, s *embedded.Store) (Sample, error) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
			dir, err := os.MkdirTemp(g.Dir, "index-")
			if err != nil {
				return nil, err
			}
			begun := time.Now()
			n, err := fillIndex(ctx, s, dir, fill)
			took := time.Since(begun)
			if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
				return nil, err
			}
			return RateOf(n, took)
		})(ctx, g)
	}
}

// fillIndex fills a new index in a folder from the whole log and returns the number of
// events.
func fillIndex(ctx context.Context, s *embedded.Store, dir string, fill indexing) (int, error) {
	if err := fill(index.New(dir), ctx, events.NewLedger(s, newMint(), time.Now), nil); err != nil {
		return 0, err
	}
	end, _ := s.Head().Parts()
	return int(end), nil
}

// decodedAtMost limits the number of payloads that decodePayloads decodes, because
// encoding/json is slow. The payloads of a history are alike, so the rate does not
// depend on their number.
const decodedAtMost = 250_000

// decodePayloads decodes payloads with encoding/json on one core and returns the rate,
// with which the rate of a rebuild is compared. It does not count the time of reading
// the records.
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

// decoders are the decoders for the kinds of events in a history.
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

// into decodes data into an E and discards it.
func into[E events.Event](data []byte) error {
	var e E
	return json.Unmarshal(data, &e)
}

// unmarshal decodes the payload of an event of a kind.
func unmarshal(kind string, data []byte) error {
	decode, ok := decoders[kind]
	if !ok {
		return fmt.Errorf("decode %s: the history has no such kind", kind)
	}
	return decode(data)
}
