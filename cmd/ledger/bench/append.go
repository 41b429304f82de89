package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// An Appender keeps events durably. Several goroutines append at once, each as
// a writer of its own, counted from 0.
type Appender interface {
	// Append adds the event that is the nth, from 1, of a writer, and returns
	// once it is on the disk. It may keep the event only until it returns.
	Append(ctx context.Context, writer, n int, event []byte) error
	Close() error
}

// Appending returns what opens a contestant of many writers, each of which
// appends one event after another for a second.
func Appending(writers int, open func(ctx context.Context, g *Ground, writers int) (Appender, error)) func(context.Context, *Ground) (Rig, error) {
	return func(ctx context.Context, g *Ground) (Rig, error) {
		a, err := open(ctx, g, writers)
		if err != nil {
			return nil, err
		}
		d := newDriver(a, writers)
		return NewRig(func(ctx context.Context) (Sample, error) { return d.run(ctx, timed(g.Span(time.Second))) }, a.Close), nil
	}
}

// A driver lets writers append.
type driver struct {
	appender Appender
	lengths  []int // of each writer
}

func newDriver(a Appender, writers int) *driver {
	return &driver{appender: a, lengths: make([]int, writers)}
}

// timed returns what is true until a time is over.
func timed(span time.Duration) func() bool {
	begun := time.Now()
	return func() bool { return time.Since(begun) < span }
}

// run lets every writer append at least once, and while goOn is true. It is
// asked by every writer.
func (d *driver) run(ctx context.Context, goOn func() bool) (Sample, error) {
	latencies, faults := make([][]time.Duration, len(d.lengths)), make([]error, len(d.lengths))
	usage, begun := processorTime(), time.Now()
	var writing sync.WaitGroup
	for w := range d.lengths {
		latencies[w] = make([]time.Duration, 0, 1<<12)
		writing.Go(func() { latencies[w], faults[w] = d.write(ctx, w, latencies[w], goOn) })
	}
	writing.Wait()
	elapsed, used := time.Since(begun), processorTime()-usage
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	sample := sampled(slices.Concat(latencies...), elapsed, used)
	if s, ok := d.appender.(syncer); ok {
		sample[Syncing] = s.takeSyncing().Seconds() / elapsed.Seconds()
	}
	return sample, nil
}

// A syncer is an Appender that knows how long it waited for the disk since it
// was last asked. It is asked when nobody appends.
type syncer interface{ takeSyncing() time.Duration }

func (d *driver) write(ctx context.Context, writer int, latencies []time.Duration, goOn func() bool) ([]time.Duration, error) {
	for first := true; first || goOn(); first = false {
		if ctx.Err() != nil {
			return latencies, context.Cause(ctx)
		}
		n := d.lengths[writer] + 1
		begun := time.Now()
		if err := d.appender.Append(ctx, writer, n, Event(writer, n)); err != nil {
			return latencies, fmt.Errorf("append event %d of writer %d: %w", n, writer, err)
		}
		latencies = append(latencies, time.Since(begun))
		d.lengths[writer] = n
	}
	return latencies, nil
}

// sampled returns the readings of things that took so long each and in all.
func sampled(latencies []time.Duration, elapsed, used time.Duration) Sample {
	n := float64(len(latencies))
	return Sample{
		Rate: n / elapsed.Seconds(), Each: micros(elapsed) / n, CPU: micros(used) / n, Busy: used.Seconds() / elapsed.Seconds(),
		Middle: micros(percentile(latencies, 50)), Tail: micros(percentile(latencies, 99)),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// eventSize is the bytes of JSON in each event.
const eventSize = 400

// pool are events to append: different ones, so that no block compresses to
// nothing.
var pool = sync.OnceValue(func() [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	made := make([][]byte, 4096)
	for i := range made {
		made[i] = jsonOf(rng, eventSize)
	}
	return made
})

// Event returns a JSON document of 400 bytes that stands for the nth event of a
// writer. It is shared and not to be written to.
func Event(writer, n int) []byte { return pool()[(writer*61+n)%len(pool())] }

var words = []string{
	"call", "read", "write", "settled", "package main", "func", "return nil, err", "./events/store.go", "exit status 1",
	"line", "match", "error:", "ok", "no such file", "the", "tool", "build", "test", "diff", "Δ", "\\n",
}

// jsonOf returns a document of so many bytes: identifiers, which do not
// compress, and words, which do.
func jsonOf(rng *rand.Rand, size int) []byte {
	b := fmt.Appendf(nil, `{"turn":"trn_%016X%010X","message":"msg_%016X%010X","call":"call_%d","text":"`,
		rng.Uint64(), rng.Uint64()>>24, rng.Uint64(), rng.Uint64()>>24, rng.IntN(1e6))
	for {
		word := words[rng.IntN(len(words))]
		if len(b)+len(word)+3 > size {
			break
		}
		b = append(append(b, word...), ' ')
	}
	for len(b) < size-2 {
		b = append(b, '.')
	}
	return append(b, '"', '}')
}

// A ledger is the store that is measured, with a stream for each writer.
type ledger struct {
	store   *embedded.Store
	mint    *domain.Mint
	streams []events.Stream
}

// OpenLedger opens the embedded store as it comes, in the state of one that has
// been in use: its first logs are written and will be recycled.
func OpenLedger(ctx context.Context, g *Ground, writers int) (Appender, error) {
	return openLedger(ctx, g, writers)
}

func openLedger(ctx context.Context, g *Ground, writers int) (*ledger, error) {
	l, err := reopenLedger(ctx, g.Dir, writers)
	if err != nil {
		return nil, err
	}
	if err := l.warm(ctx, g.Bytes(warmth)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// reopenLedger opens the embedded store with streams of its own for the
// writers, and writes nothing.
func reopenLedger(ctx context.Context, dir string, writers int) (*ledger, error) {
	store, err := embedded.Open(ctx, dir, embedded.Config{Owner: embedded.Owner{Command: "bench"}})
	if err != nil {
		return nil, err
	}
	l := &ledger{store: store, mint: newMint()}
	for range writers {
		l.streams = append(l.streams, events.SessionStream(l.mint.Session()))
	}
	return l, nil
}

// newMint returns a mint whose randomness costs what a generator does.
func newMint() *domain.Mint {
	return domain.NewMint(time.Now, rand.NewChaCha8([32]byte{1}))
}

// warmth is how many bytes a store has written before it is measured: more than
// the tables of a store that is written to, so that logs were given back.
const warmth = 64 << 20

// warm appends so many bytes, many events at once, to a stream of its own.
func (l *ledger) warm(ctx context.Context, bytes int64) error {
	stream, length := events.SessionStream(l.mint.Session()), events.Revision(0)
	for left := bytes; left > 0; left -= 2048 * eventSize {
		records := make([]events.Record, 2048)
		for i := range records {
			records[i] = l.record(Event(0, int(length)+i))
		}
		if err := l.store.Append(ctx, stream, length, records...); err != nil {
			return err
		}
		length += events.Revision(len(records))
	}
	return nil
}

func (l *ledger) record(event []byte) events.Record {
	return events.Record{ID: l.mint.Event(), Kind: "CallSettled", Version: 1, Time: now(), Data: event}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func (l *ledger) Append(ctx context.Context, writer, n int, event []byte) error {
	return l.store.Append(ctx, l.streams[writer], events.Revision(n-1), l.record(event))
}

func (l *ledger) Close() error { return l.store.Close() }
