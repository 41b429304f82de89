package events

import (
	"context"
	"iter"
	"runtime"
	"sync"
)

// How much is read ahead: so many batches, of so many entries or bytes. A
// decodeBatch whose entries are large is large.
const (
	maxBatches      = 8
	maxBatchEntries = 256
	maxBatchBytes   = 128 << 10
	largeBatch      = 1 << 20
	maxDecoders     = 8
)

// A decodeBatch is some entries on their way to be events.
type decodeBatch struct {
	entries  []Entry
	bytes    []byte // of the entries
	events   []Envelope
	err      error         // behind events
	decoded  chan struct{} // gets one when events are there
	released chan struct{} // gets one when the decodeBatch is large and was released
}

func newDecodeBatch() *decodeBatch {
	return &decodeBatch{
		entries: make([]Entry, 0, maxBatchEntries), events: make([]Envelope, 0, maxBatchEntries), bytes: make([]byte, 0, maxBatchBytes),
		decoded: make(chan struct{}, 1), released: make(chan struct{}, 1),
	}
}

// empty makes a decodeBatch fit to be toDecode again.
func (b *decodeBatch) reset() *decodeBatch {
	clear(b.events)
	b.entries, b.events, b.err = b.entries[:0], b.events[:0], nil
	if b.bytes = b.bytes[:0]; cap(b.bytes) > largeBatch {
		b.bytes = make([]byte, 0, maxBatchBytes)
	}
	return b
}

// add copies an entry whose bytes are lent.
func (b *decodeBatch) add(e Entry) {
	data := len(b.bytes)
	b.bytes = append(append(b.bytes, e.Data...), e.Metadata...)
	metadata := data + len(e.Data)
	e.Data, e.Metadata = b.bytes[data:metadata:metadata], b.bytes[metadata:len(b.bytes):len(b.bytes)]
	b.entries = append(b.entries, e)
}

func (b *decodeBatch) full() bool {
	return len(b.entries) == maxBatchEntries || len(b.bytes) >= maxBatchBytes
}

func (b *decodeBatch) decode(d *decoder) {
	for _, e := range b.entries {
		v, err := d.lent(e)
		if err != nil {
			b.err = err // what follows it is of no use
			break
		}
		b.events = append(b.events, v)
	}
	b.decoded <- struct{}{}
}

// ScanAhead is [Ledger.Scan] with reading and decoding done ahead by other
// goroutines, as many as the program may run at once: for a loop that takes
// in a long log. They hold no more than some megabytes and one large record
// at a time, and have stopped when the loop has. Where the program runs on one
// processor, it is Scan.
func (l *Ledger) ScanAhead(ctx context.Context, q Query) iter.Seq2[Envelope, error] {
	decoders := min(runtime.GOMAXPROCS(0)-1, maxDecoders)
	if decoders == 0 {
		return l.Scan(ctx, q)
	}
	return func(yield func(Envelope, error) bool) {
		readCtx, stop := context.WithCancel(ctx)
		p := &prefetcher{
			toDecode: make(chan *decodeBatch, maxBatches), toYield: make(chan *decodeBatch, maxBatches),
			free: make(chan *decodeBatch, maxBatches), stopped: readCtx.Done(),
		}
		var group sync.WaitGroup
		defer group.Wait()
		defer stop()
		group.Go(func() { p.read(Lend(readCtx, l.store, q)) })
		for range decoders {
			group.Go(p.decode)
		}
		p.yieldAll(ctx, yield)
	}
}

// An ahead is the channels between one goroutine that reads, some that decode
// and the one of the loop.
type prefetcher struct {
	toDecode chan *decodeBatch // for whoever decodes
	toYield  chan *decodeBatch // the same, for the loop
	free     chan *decodeBatch
	stopped  <-chan struct{} // the loop was left
}

// read fills batches until the entries end.
func (p *prefetcher) read(entries iter.Seq2[Entry, error]) {
	defer close(p.toDecode)
	defer close(p.toYield)
	b := p.newOrFree()
	for e, err := range entries {
		if err != nil {
			b.err = err
			break
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

// send gives a decodeBatch on, and reports whether there is use for more.
func (p *prefetcher) send(b *decodeBatch) bool {
	large := len(b.bytes) > largeBatch
	select {
	case p.toYield <- b:
	case <-p.stopped:
		return false
	}
	p.toDecode <- b // whoever decodes goes on until it is closed
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

func (p *prefetcher) newOrFree() *decodeBatch {
	select {
	case b := <-p.free:
		return b
	default:
		return newDecodeBatch()
	}
}

func (p *prefetcher) decode() {
	d := &decoder{}
	for b := range p.toDecode {
		b.decode(d)
	}
}

// consume yields what was decoded, in order.
func (p *prefetcher) yieldAll(ctx context.Context, yield func(Envelope, error) bool) {
	for b := range p.toYield {
		<-b.decoded
		if err := context.Cause(ctx); err != nil {
			yield(Envelope{}, err)
			return
		}
		for _, v := range b.events {
			if !yield(v, nil) {
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
	// What was read when the context stopped need not have come this far.
	if err := context.Cause(ctx); err != nil {
		yield(Envelope{}, err)
	}
}
