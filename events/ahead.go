package events

import (
	"context"
	"iter"
	"runtime"
	"sync"
)

// How much is read ahead: so many batches, of so many entries or bytes. A
// batch whose entries are large is alone.
const (
	batchesAhead = 8
	batchEntries = 256
	batchBytes   = 128 << 10
	batchAlone   = 1 << 20
	mostDecoders = 8
)

// A batch is some entries on their way to be events.
type batch struct {
	entries  []Entry
	bytes    []byte // of the entries
	events   []Envelope
	err      error         // behind events
	decoded  chan struct{} // gets one when events are there
	consumed chan struct{} // gets one when the batch is alone and was consumed
}

func newBatch() *batch {
	return &batch{
		entries: make([]Entry, 0, batchEntries), events: make([]Envelope, 0, batchEntries), bytes: make([]byte, 0, batchBytes),
		decoded: make(chan struct{}, 1), consumed: make(chan struct{}, 1),
	}
}

// empty makes a batch fit to be filled again.
func (b *batch) empty() *batch {
	clear(b.events)
	b.entries, b.events, b.err = b.entries[:0], b.events[:0], nil
	if b.bytes = b.bytes[:0]; cap(b.bytes) > batchAlone {
		b.bytes = make([]byte, 0, batchBytes)
	}
	return b
}

// add copies an entry whose bytes are lent.
func (b *batch) add(e Entry) {
	from := len(b.bytes)
	b.bytes = append(append(b.bytes, e.Data...), e.Metadata...)
	middle := from + len(e.Data)
	e.Data, e.Metadata = b.bytes[from:middle:middle], b.bytes[middle:len(b.bytes):len(b.bytes)]
	b.entries = append(b.entries, e)
}

func (b *batch) full() bool { return len(b.entries) == batchEntries || len(b.bytes) >= batchBytes }

func (b *batch) decode(d *decoder) {
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
// at a time, and have ended when the loop has. Where the program runs on one
// processor, it is Scan.
func (l *Ledger) ScanAhead(ctx context.Context, q Query) iter.Seq2[Envelope, error] {
	decoders := min(runtime.GOMAXPROCS(0)-1, mostDecoders)
	if decoders == 0 {
		return l.Scan(ctx, q)
	}
	return func(yield func(Envelope, error) bool) {
		within, stop := context.WithCancel(ctx)
		a := &ahead{
			filled: make(chan *batch, batchesAhead), inOrder: make(chan *batch, batchesAhead),
			free: make(chan *batch, batchesAhead), ended: within.Done(),
		}
		var group sync.WaitGroup
		defer group.Wait()
		defer stop()
		group.Go(func() { a.read(Lend(within, l.store, q)) })
		for range decoders {
			group.Go(a.decode)
		}
		a.consume(ctx, yield)
	}
}

// An ahead is the channels between one goroutine that reads, some that decode
// and the one of the loop.
type ahead struct {
	filled  chan *batch // for whoever decodes
	inOrder chan *batch // the same, for the loop
	free    chan *batch
	ended   <-chan struct{} // the loop was left
}

// read fills batches until the entries end.
func (a *ahead) read(entries iter.Seq2[Entry, error]) {
	defer close(a.filled)
	defer close(a.inOrder)
	b := a.fresh()
	for e, err := range entries {
		if err != nil {
			b.err = err
			break
		}
		if b.add(e); !b.full() {
			continue
		}
		if !a.send(b) {
			return
		}
		b = a.fresh()
	}
	a.send(b)
}

// send gives a batch on, and reports whether there is use for more.
func (a *ahead) send(b *batch) bool {
	alone := len(b.bytes) > batchAlone
	select {
	case a.inOrder <- b:
	case <-a.ended:
		return false
	}
	a.filled <- b // whoever decodes goes on until it is closed
	if !alone {
		return true
	}
	select {
	case <-b.consumed:
		return true
	case <-a.ended:
		return false
	}
}

func (a *ahead) fresh() *batch {
	select {
	case b := <-a.free:
		return b
	default:
		return newBatch()
	}
}

func (a *ahead) decode() {
	d := &decoder{}
	for b := range a.filled {
		b.decode(d)
	}
}

// consume yields what was decoded, in order.
func (a *ahead) consume(ctx context.Context, yield func(Envelope, error) bool) {
	for b := range a.inOrder {
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
		alone := len(b.bytes) > batchAlone
		b.empty()
		if alone {
			b.consumed <- struct{}{}
			continue
		}
		select {
		case a.free <- b:
		default:
		}
	}
	// What was read when the context ended need not have come this far.
	if err := context.Cause(ctx); err != nil {
		yield(Envelope{}, err)
	}
}
