package server

import (
	"container/list"
	"context"
	"hash/maphash"
	"iter"
	"strings"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The bounds of the index of IDs.
const (
	blockIDs   = 1024    // IDs of one filter
	filterBits = 1 << 15 // bits of one filter: 32 for each ID
	probes     = 8       // bits that an ID sets
	indexBytes = 64 << 20
	streamCost = 512 // bytes of a stream in the index, without its name and its IDs
)

// An idIndex tells which events of a stream have which IDs. It is a cache: it is
// filled from the headers of a stream when that is first asked for, brought up to
// date before each use, and the streams used longest ago leave it when it has
// more than indexBytes. It is safe for concurrent use.
type idIndex struct {
	seed     maphash.Seed
	capacity int // bytes
	mu       struct {
		sync.Mutex
		byStream map[events.Stream]*list.Element // of *streamIDs
		used     list.List                       // the stream used last is in front
		bytes    int
	}
}

func newIDIndex(capacity int) *idIndex {
	x := &idIndex{seed: maphash.MakeSeed(), capacity: capacity}
	x.mu.byStream = map[events.Stream]*list.Element{}
	return x
}

// streamIDs are the IDs of one stream, up to a length. A caller holds its turn
// from before it looks until after it has appended.
type streamIDs struct {
	index  *idIndex
	stream events.Stream
	turn   chan struct{}
	length events.Revision
	end    events.Position // of the entry that made the stream so long
	blocks []idBlock
	tail   []domain.EventID // those behind the blocks
	start  events.Position  // of the entry before the tail
	cost   int              // bytes that the index counts; guarded by its mu
}

// An idBlock is a Bloom filter of blockIDs consecutive events of a stream.
type idBlock struct {
	bits  *[filterBits / 64]uint64
	start events.Position // of the entry before the first of them
}

// acquire returns the IDs of a stream, which the caller releases. It waits for
// the caller before it until ctx ends, and then returns its cause. The turn saves
// conflicts and nothing else: two callers with one stream, as there are when it
// left the index meanwhile, are kept apart by the store.
func (x *idIndex) acquire(ctx context.Context, stream events.Stream) (*streamIDs, error) {
	x.mu.Lock()
	element, ok := x.mu.byStream[stream]
	if !ok {
		name := events.Stream(strings.Clone(string(stream)))
		s := &streamIDs{index: x, stream: name, turn: make(chan struct{}, 1), cost: streamCost + len(name)}
		element = x.mu.used.PushFront(s)
		x.mu.byStream[name] = element
		x.mu.bytes += s.cost // also if the caller is gone and never releases it
	}
	x.mu.used.MoveToFront(element)
	s := element.Value.(*streamIDs)
	x.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// release gives the turn to the next caller.
func (s *streamIDs) release() {
	s.index.count(s)
	<-s.turn
}

// count counts what a stream takes, and evicts others until the index is within
// its capacity. The stream that is counted stays.
func (x *idIndex) count(s *streamIDs) {
	cost := streamCost + len(s.stream) + len(s.blocks)*filterBits/8 + cap(s.tail)*len([16]byte{})
	x.mu.Lock()
	defer x.mu.Unlock()
	element, ok := x.mu.byStream[s.stream]
	if !ok || element.Value.(*streamIDs) != s { // it left the index meanwhile
		return
	}
	x.mu.bytes += cost - s.cost
	s.cost = cost
	for last := x.mu.used.Back(); x.mu.bytes > x.capacity && last != nil && last != element; last = x.mu.used.Back() {
		evicted := last.Value.(*streamIDs)
		x.mu.used.Remove(last)
		delete(x.mu.byStream, evicted.stream)
		x.mu.bytes -= evicted.cost
	}
}

// update reads what was appended to the stream since the last time, and reports
// whether that was anything.
func (s *streamIDs) update(ctx context.Context, store events.Store) (grown bool, err error) {
	for h, err := range events.Headers(ctx, store, events.Query{Stream: s.stream, After: s.end}) {
		if err != nil {
			return grown, err
		}
		s.length, s.end, grown = h.Revision, h.Position, true
		if s.tail = append(s.tail, h.ID); len(s.tail) == blockIDs {
			s.seal()
		}
	}
	return grown, nil
}

// seal makes a block of the tail.
func (s *streamIDs) seal() {
	b := idBlock{bits: new([filterBits / 64]uint64), start: s.start}
	for _, id := range s.tail {
		for bit := range s.index.bits(id) {
			b.bits[bit/64] |= 1 << (bit % 64)
		}
	}
	s.blocks = append(s.blocks, b)
	s.tail, s.start = s.tail[:0], s.end
}

// bits yields the bits of a filter that an ID sets. They depend on a seed that
// callers do not know, so no caller can choose IDs that share them.
func (x *idIndex) bits(id domain.EventID) iter.Seq[uint64] {
	b := id.Bytes()
	h := maphash.Bytes(x.seed, b[:])
	step := h>>32 | 1
	return func(yield func(uint64) bool) {
		for i := range uint64(probes) {
			if !yield((h + i*step) % filterBits) {
				return
			}
		}
	}
}

func (s *streamIDs) mayHave(b idBlock, id domain.EventID) bool {
	for bit := range s.index.bits(id) {
		if b.bits[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}

// find returns where the records with these IDs are in the stream, for each the
// first if there are several. An ID that is not there is not in the map.
func (s *streamIDs) find(ctx context.Context, store events.Store, records []events.Record) (map[domain.EventID]events.Header, error) {
	wanted := make(map[domain.EventID]bool, len(records))
	for _, r := range records {
		wanted[r.ID] = true
	}
	found := map[domain.EventID]events.Header{}
	read := func(after events.Position) error {
		n := 0
		for h, err := range events.Headers(ctx, store, events.Query{Stream: s.stream, After: after}) {
			if err != nil {
				return err
			}
			if wanted[h.ID] {
				found[h.ID] = h
				delete(wanted, h.ID)
			}
			if n++; n == blockIDs || len(wanted) == 0 {
				break
			}
		}
		return nil
	}
	for _, b := range s.blocks {
		for id := range wanted {
			if !s.mayHave(b, id) {
				continue
			}
			if err := read(b.start); err != nil {
				return nil, err
			}
			break
		}
	}
	for _, id := range s.tail {
		if wanted[id] {
			return found, read(s.start)
		}
	}
	return found, nil
}
