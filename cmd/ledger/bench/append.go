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
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
)

// An Appender is a durable store of events. Several goroutines append at once; each
// is a writer of its own, numbered from 0.
type Appender interface {
	// Append stores event n, counted from 1, of a writer, and returns once it is
	// durable. It must not retain event.
	Append(ctx context.Context, writer, n int, event []byte) error
	Close() error
}

// Appending returns the Open function of a contestant with many writers. In each
// round every writer appends one event after another for a second, scaled.
func Appending(writers int, open func(ctx context.Context, g *Ground, writers int) (Appender, error)) func(context.Context, *Ground) (Rig, error) {
	return func(ctx context.Context, g *Ground) (Rig, error) {
		a, err := open(ctx, g, writers)
		if err != nil {
			return nil, err
		}
		d := newDriver(a, writers)
		return NewRig(func(ctx context.Context) (Sample, error) { return d.run(ctx, timed(g.span(time.Second))) }, a.Close), nil
	}
}

// A driver runs the writers of an Appender and measures their appends.
type driver struct {
	appender Appender
	lengths  []int // number of events that each writer has appended; owned by its goroutine during run
}

// newDriver returns a driver of writers that have not appended yet. The caller still
// closes the Appender.
func newDriver(a Appender, writers int) *driver {
	return &driver{appender: a, lengths: make([]int, writers)}
}

// timed returns a function that reports true until span has passed.
func timed(span time.Duration) func() bool {
	begun := time.Now()
	return func() bool { return time.Since(begun) < span }
}

// run starts a goroutine for each writer and joins them. Each writer appends one event,
// and then further ones while goOn reports true; the writers call goOn concurrently. The
// sample holds the rate, the latencies and the processor time. If the Appender is a
// syncer, it also holds the share of time spent in syncs.
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

// A syncer is an Appender that measures its syncs. takeSyncing returns the time spent in
// syncs since the previous call of takeSyncing. It must not run concurrently with
// Append.
type syncer interface{ takeSyncing() time.Duration }

// write appends events as one writer: the first one, and further ones while goOn reports
// true. It returns latencies extended by the latency of each append.
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

// sampled returns the sample of operations with these latencies. elapsed is the duration
// of the whole run, and used is the processor time of the run. sampled sorts latencies
// in place.
func sampled(latencies []time.Duration, elapsed, used time.Duration) Sample {
	n := float64(len(latencies))
	return Sample{
		Rate: n / elapsed.Seconds(), Each: micros(elapsed) / n, CPU: micros(used) / n, Busy: used.Seconds() / elapsed.Seconds(),
		Middle: micros(percentile(latencies, 50)), Tail: micros(percentile(latencies, 99)),
	}
}

// micros converts a duration to microseconds.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// eventSize is the size of the JSON of each event, in bytes.
const eventSize = 400

// pool returns the events that writers append. The events differ, so that a block of
// them does not compress to almost no bytes. The seed of their random source is
// constant, so all runs append the same events.
var pool = sync.OnceValue(func() [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	made := make([][]byte, 4096)
	for i := range made {
		made[i] = jsonOf(rng, eventSize)
	}
	return made
})

// Event returns the JSON document of 400 bytes that a writer appends as its event n.
// The caller must not modify it, as all writers share it.
func Event(writer, n int) []byte { return pool()[(writer*61+n)%len(pool())] }

// words are the compressible part of generated texts.
var words = []string{
	"call", "read", "write", "settled", "package main", "func", "return nil, err", "./events/store.go", "exit status 1",
	"line", "match", "error:", "ok", "no such file", "the", "tool", "build", "test", "diff", "Δ", "\\n",
}

// jsonOf returns a JSON document of exactly size bytes, made of identifiers, which
// do not compress, and words, which do.
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

// A ledger is the embedded store as an Appender. Each writer has a stream of its
// own.
type ledger struct {
	store   *embedded.Store
	mint    *domain.Mint
	streams []events.Stream
}

// OpenLedger opens the embedded store with its default configuration. It then writes to
// the store until the store can recycle log files, as a store in use does.
func OpenLedger(ctx context.Context, g *Ground, writers int) (Appender, error) {
	return openLedger(ctx, g, writers)
}

// openLedger opens and warms up the store as OpenLedger does, and returns the concrete
// type *ledger.
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

// reopenLedger opens the embedded store in dir, new or existing, with a new stream
// for each writer. It appends no event.
func reopenLedger(ctx context.Context, dir string, writers int) (*ledger, error) {
	store, err := embedded.Open(ctx, dir, embedded.Config{Owner: storedir.Owner{Command: "bench"}})
	if err != nil {
		return nil, err
	}
	l := &ledger{store: store, mint: newMint()}
	for range writers {
		l.streams = append(l.streams, events.SessionStream(l.mint.Session()))
	}
	return l, nil
}

// newMint returns a mint with a pseudorandom source, so that minting an ID costs no
// system call.
func newMint() *domain.Mint {
	return domain.NewMint(time.Now, rand.NewChaCha8([32]byte{1}))
}

// warmth is the number of bytes that a store writes before it is measured: more than
// its memtables hold, so that flushes have released log files for recycling.
const warmth = 64 << 20

// warm appends at least the given number of bytes to a new stream, in large batches.
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

// record returns event as a record with a new ID.
func (l *ledger) record(event []byte) events.Record {
	return events.Record{ID: l.mint.Event(), Kind: "CallSettled", Version: 1, Time: now(), Data: event}
}

// now returns the current time in UTC, truncated to microseconds, the precision of
// records.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// Append appends event n of a writer to the stream of the writer.
func (l *ledger) Append(ctx context.Context, writer, n int, event []byte) error {
	return l.store.Append(ctx, l.streams[writer], events.Revision(n-1), l.record(event))
}

// Close closes the store.
func (l *ledger) Close() error { return l.store.Close() }
