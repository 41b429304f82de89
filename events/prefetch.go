package events

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync"
)

// The limits of reading ahead. After a batch of more than largeBatch bytes, no
// further batch is read until the loop has released it.
const (
	maxBatches      = 8
	maxBatchEntries = 256
	maxBatchBytes   = 128 << 10
	largeBatch      = 1 << 20
	maxDecoders     = 8
)

// A decodeBatch is a batch of entries with the events decoded from them.
type decodeBatch struct {
	entries  []Entry
	bytes    []byte // the data and metadata of the entries
	events   []Envelope
	err      error         // the error after events
	errs     []error       // the error of each entry, or nil; only for DecodeAhead
	decoded  chan struct{} // receives one value when events are complete
	released chan struct{} // receives one value when the loop is done with a large batch
}

// newDecodeBatch allocates an empty batch.
func newDecodeBatch() *decodeBatch {
	return &decodeBatch{
		entries: make([]Entry, 0, maxBatchEntries), events: make([]Envelope, 0, maxBatchEntries), bytes: make([]byte, 0, maxBatchBytes),
		decoded: make(chan struct{}, 1), released: make(chan struct{}, 1),
	}
}

// reset empties a batch for reuse. It frees a buffer that a large record made
// grow.
func (b *decodeBatch) reset() *decodeBatch {
	clear(b.events)
	clear(b.errs)
	b.entries, b.events, b.errs, b.err = b.entries[:0], b.events[:0], b.errs[:0], nil
	if b.bytes = b.bytes[:0]; cap(b.bytes) > largeBatch {
		b.bytes = make([]byte, 0, maxBatchBytes)
	}
	return b
}

// add copies an entry, whose bytes belong to the store, into the batch.
func (b *decodeBatch) add(e Entry) {
	data := len(b.bytes)
	b.bytes = append(append(b.bytes, e.Data...), e.Metadata...)
	metadata := data + len(e.Data)
	e.Data, e.Metadata = b.bytes[data:metadata:metadata], b.bytes[metadata:len(b.bytes):len(b.bytes)]
	b.entries = append(b.entries, e)
}

// full reports whether the batch has reached maxBatchEntries or maxBatchBytes.
func (b *decodeBatch) full() bool {
	return len(b.entries) == maxBatchEntries || len(b.bytes) >= maxBatchBytes
}

// decode decodes the entries up to the first error and signals decoded.
func (b *decodeBatch) decode(d *decoder) {
	for _, e := range b.entries {
		v, err := d.lent(e)
		if err != nil {
			b.err = err // the loop ends here
			break
		}
		b.events = append(b.events, v)
	}
	b.decoded <- struct{}{}
}

// decodeEach decodes all entries that were read. The envelope of a damaged one has no
// event.
func (b *decodeBatch) decodeEach(d *decoder) {
	for i, e := range b.entries {
		v := Envelope{ID: e.ID, Stream: e.Stream, Revision: e.Revision, Position: e.Position, Time: e.Time}
		if b.errs[i] == nil {
			decoded, err := d.lent(e)
			if b.errs[i] = err; err == nil {
				v = decoded
			}
		}
		b.events = append(b.events, v)
	}
	b.decoded <- struct{}{}
}

// DecodeAhead decodes entries, whose bytes may belong to the store, on other goroutines,
// and continues after damage. It yields the envelope of each entry in order. An entry that
// does not decode gives an ErrDamaged, with an envelope that has the place of the entry and
// no event. An ErrDamaged of entries is passed on with a zero envelope. Any other error
// ends the loop. The memory is that of [Ledger.ScanAhead]. The goroutines end before the
// loop returns.
func DecodeAhead(ctx context.Context, entries iter.Seq2[Entry, error]) iter.Seq2[Envelope, error] {
	return func(yield func(Envelope, error) bool) {
		p, stop := newPrefetcher(ctx)
		p.each = true
		defer p.group.Wait()
		defer stop()
		p.start(entries, min(max(runtime.GOMAXPROCS(0)-1, 1), maxDecoders))
		p.yieldAll(ctx, yield)
	}
}

// ScanAhead yields the same events as [Ledger.Scan]. It is faster for a long
// log, because up to GOMAXPROCS other goroutines read and decode the entries.
// These goroutines hold a few megabytes and at most one large record at a time,
// and end before the loop returns. If GOMAXPROCS is 1, ScanAhead is Scan.
func (l *Ledger) ScanAhead(ctx context.Context, q Query) iter.Seq2[Envelope, error] {
	decoders := min(runtime.GOMAXPROCS(0)-1, maxDecoders)
	if decoders == 0 {
		return l.Scan(ctx, q)
	}
	return func(yield func(Envelope, error) bool) {
		p, stop := newPrefetcher(ctx)
		defer p.group.Wait()
		defer stop()
		p.start(Lend(p.ctx, l.store, q), decoders)
		p.yieldAll(ctx, yield)
	}
}

// A prefetcher connects one goroutine that reads, several that decode, and the
// goroutine of the loop. Batches circulate through its channels.
type prefetcher struct {
	toDecode chan *decodeBatch // to the decoders
	toYield  chan *decodeBatch // the same batches in order, to the loop
	free     chan *decodeBatch
	stopped  <-chan struct{} // closed when the loop is left
	ctx      context.Context // ends when the loop is left
	each     bool            // continue after damage
	group    sync.WaitGroup  // the goroutines
}

// newPrefetcher returns a prefetcher and the function that tells its goroutines to end.
func newPrefetcher(ctx context.Context) (*prefetcher, context.CancelFunc) {
	readCtx, stop := context.WithCancel(ctx)
	return &prefetcher{
		toDecode: make(chan *decodeBatch, maxBatches), toYield: make(chan *decodeBatch, maxBatches),
		free: make(chan *decodeBatch, maxBatches), stopped: readCtx.Done(), ctx: readCtx,
	}, stop
}

// start starts the goroutines.
func (p *prefetcher) start(entries iter.Seq2[Entry, error], decoders int) {
	p.group.Go(func() { p.read(entries) })
	for range decoders {
		p.group.Go(p.decode)
	}
}

// read fills batches until the entries end or the loop is left, then closes
// the channels.
func (p *prefetcher) read(entries iter.Seq2[Entry, error]) {
	defer close(p.toDecode)
	defer close(p.toYield)
	b := p.newOrFree()
	for e, err := range entries {
		damaged := p.each && errors.Is(err, ErrDamaged)
		if err != nil && !damaged {
			b.err = err
			break
		}
		if p.each {
			b.errs = append(b.errs, err)
		}
		if b.add(e); !b.full() {
			continue
		}
		if !p.send(b) {
			return
		}
		b = p.newOrFree()
	}
	p.send(b)
}

// send passes a batch to the decoders and the loop. After a large batch it
// waits until the loop has released it. It returns false if the caller left the loop.
func (p *prefetcher) send(b *decodeBatch) bool {
	large := len(b.bytes) > largeBatch
	select {
	case p.toYield <- b:
	case <-p.stopped:
		return false
	}
	p.toDecode <- b // cannot block: decoders run until it is closed
	if !large {
		return true
	}
	select {
	case <-b.released:
		return true
	case <-p.stopped:
		return false
	}
}

// newOrFree returns a free batch, or a new one.
func (p *prefetcher) newOrFree() *decodeBatch {
	select {
	case b := <-p.free:
		return b
	default:
		return newDecodeBatch()
	}
}

// decode decodes batches until toDecode is closed.
func (p *prefetcher) decode() {
	d := &decoder{}
	for b := range p.toDecode {
		if p.each {
			b.decodeEach(d)
		} else {
			b.decode(d)
		}
	}
}

// yieldAll yields the events of the batches in order, and ends with the first
// error.
func (p *prefetcher) yieldAll(ctx context.Context, yield func(Envelope, error) bool) {
	for b := range p.toYield {
		<-b.decoded
		if err := context.Cause(ctx); err != nil {
			yield(Envelope{}, err)
			return
		}
		for i, v := range b.events {
			var err error
			if p.each {
				err = b.errs[i]
			}
			if !yield(v, err) {
				return
			}
		}
		if b.err != nil {
			yield(Envelope{}, b.err)
			return
		}
		large := len(b.bytes) > largeBatch
		b.reset()
		if large {
			b.released <- struct{}{}
			continue
		}
		select {
		case p.free <- b:
		default:
		}
	}
	// The reader stops when ctx ends, so toYield may have closed before all entries
	// were read.
	if err := context.Cause(ctx); err != nil {
		yield(Envelope{}, err)
	}
}
