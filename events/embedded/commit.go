package embedded

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
)

// The bounds of what waits for the committer and of what it writes at once.
const (
	queueLen   = 1024     // appends; more wait outside
	groupLen   = 1024     // appends in a group
	groupBytes = 8 << 20  // bytes in a group of more than one append
	maxAppend  = 1 << 30  // bytes in one append; Pebble's batches end at four times that
	maxHeads   = 16 << 10 // streams whose length is remembered, twice over
)

// A pending append waits for the committer.
type pending struct {
	stream  events.Stream
	after   events.Revision
	values  [][]byte // the records, encoded
	size    int
	claimed atomic.Bool // by the committer, or by an appender that gave up
	done    chan error
}

// through returns the length of the stream with the records.
func (p *pending) through() events.Revision { return p.after + events.Revision(len(p.values)) }

// Append is events.Store's. An append whose context ends before the committer
// took it is withdrawn and adds nothing; afterwards the outcome is open. After a
// write that failed, the store refuses every append; what was being appended is
// open, and opening the store again tells.
func (s *Store) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	p, err := s.prepare(stream, after, records)
	if err != nil {
		return fmt.Errorf("append to %s after revision %d: %w", stream, after, err)
	}
	if err := s.enqueue(ctx, p); err != nil {
		return err
	}
	select {
	case err = <-p.done:
	case <-ctx.Done():
		p.claimed.CompareAndSwap(false, true)
		return context.Cause(ctx)
	}
	if err == nil || errors.Is(err, events.ErrConflict) || errors.Is(err, events.ErrClosed) {
		return err
	}
	return fmt.Errorf("append to %s after revision %d: %w", stream, after, err)
}

// prepare checks an append and encodes its records, so that nothing of what
// the caller gave is kept.
func (s *Store) prepare(stream events.Stream, after events.Revision, records []events.Record) (*pending, error) {
	if err := s.check(stream, after, records); err != nil {
		return nil, err
	}
	p := &pending{stream: stream, after: after, values: make([][]byte, len(records)), done: make(chan error, 1)}
	for i, r := range records {
		p.values[i] = encode(stream, after+events.Revision(i+1), r)
		p.size += len(p.values[i])
	}
	return p, nil
}

func (s *Store) check(stream events.Stream, after events.Revision, records []events.Record) error {
	switch {
	case stream == "":
		return fmt.Errorf("%w: there is no stream", events.ErrBadRecord)
	case len(stream) > maxStream || strings.IndexByte(string(stream), 0) >= 0:
		return fmt.Errorf("%w: the stream's name has a zero byte or is longer than %d bytes", events.ErrBadRecord, maxStream)
	case len(records) == 0:
		return fmt.Errorf("%w: there are no records", events.ErrBadRecord)
	case uint64(after) > limit-uint64(len(records)):
		return &events.Conflict{Stream: stream, After: after}
	}
	total := 0
	for _, r := range records {
		if err := s.checkRecord(r); err != nil {
			return err
		}
		if total += len(r.Data) + len(r.Metadata); total > maxAppend {
			return fmt.Errorf("%w: the records of one append are together larger than %d bytes", events.ErrTooLarge, maxAppend)
		}
	}
	return nil
}

func (s *Store) checkRecord(r events.Record) error {
	if err := r.Valid(); err != nil {
		return err
	}
	switch size := len(r.Data) + len(r.Metadata); {
	case len(r.Kind) > maxKind:
		return fmt.Errorf("%w: the kind of %s is longer than %d bytes", events.ErrBadRecord, r.ID, maxKind)
	case !time.UnixMicro(r.Time.UnixMicro()).Equal(r.Time):
		return fmt.Errorf("%w: the time of %s %s is too far away", events.ErrBadRecord, r.Kind, r.ID)
	case size > s.maxRecord:
		return fmt.Errorf("%w: %s %s has %d bytes, and the limit is %d", events.ErrTooLarge, r.Kind, r.ID, size, s.maxRecord)
	}
	return nil
}

// enqueue gives p to the committer, which then answers it.
func (s *Store) enqueue(ctx context.Context, p *pending) error {
	// A committer that ends answers what is in the queue after closed is set,
	// so nothing may enter then.
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.mu.closed {
		return events.ErrClosed
	}
	select {
	case s.queue <- p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// commitAll is the committer: the one goroutine that writes records. It makes
// of all that waits one group, which is one batch and one sync.
func (s *Store) commitAll() {
	var kept []*pending // of streams that the last group touched
	for {
		if s.isClosing() {
			s.turnAway(kept)
			return
		}
		if len(kept) == 0 {
			select {
			case p := <-s.queue:
				kept = append(kept, p)
			case <-s.closing:
				continue
			}
			// Appenders that the last group woke come now and not one group
			// later.
			runtime.Gosched()
		}
		kept = s.commit(s.gather(kept))
	}
}

func (s *Store) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// gather adds to the appends that were kept what waits, up to the bounds of a
// group.
func (s *Store) gather(group []*pending) []*pending {
	size := 0
	for _, p := range group {
		size += p.size
	}
	for len(group) < groupLen && size < groupBytes {
		select {
		case p := <-s.queue:
			group = append(group, p)
			size += p.size
		default:
			return group
		}
	}
	return group
}

// turnAway answers what was kept and what is in the queue of a store that
// closes.
func (s *Store) turnAway(kept []*pending) {
	for _, p := range kept {
		p.done <- events.ErrClosed
	}
	for {
		select {
		case p := <-s.queue:
			p.done <- events.ErrClosed
		default:
			return
		}
	}
}

// A group is what one batch and one sync make durable.
type group struct {
	batch   *pebble.Batch
	end     uint64   // the sequence of the last record
	values  [][]byte // the records, sealed
	lengths map[events.Stream]events.Revision
	taken   []*pending
}

// commit answers the appends, all but those that it returns for the next
// group: whether those succeed hangs on what is only now becoming durable.
func (s *Store) commit(appends []*pending) (kept []*pending) {
	end, _ := s.mark.now()
	g := &group{batch: s.db.NewBatch(), end: end, lengths: map[events.Stream]events.Revision{}}
	for _, p := range appends {
		if length, touched := g.lengths[p.stream]; touched && length != p.after {
			kept = append(kept, p)
			continue
		}
		if p.claimed.CompareAndSwap(false, true) {
			s.take(g, p)
		}
	}
	err := s.write(g)
	for _, p := range g.taken {
		p.done <- err
	}
	return kept
}

// take answers an append that changes nothing, and adds any other to g.
func (s *Store) take(g *group, p *pending) {
	length, touched := g.lengths[p.stream]
	if !touched {
		var err error
		if err = s.guard.failure(); err == nil {
			length, err = s.length(p.stream)
		}
		if err == nil && length != p.after {
			err = s.recognise(p, length)
			p.done <- err
			return
		}
		if err != nil {
			p.done <- err
			return
		}
	}
	if err := g.add(p); err != nil {
		p.done <- err
		return
	}
	g.lengths[p.stream] = p.through()
	g.taken = append(g.taken, p)
}

// add puts the records into the batch, with the next sequences.
func (g *group) add(p *pending) error {
	for i, value := range p.values {
		g.end++
		value = seal(value, g.end)
		g.values = append(g.values, value)
		if err := g.batch.Set(entryKey(g.end), value, nil); err != nil {
			return err
		}
		index := indexKey(p.stream, p.after+events.Revision(i+1))
		if err := g.batch.Set(index, entryKey(g.end)[2:], nil); err != nil {
			return err
		}
	}
	return nil
}

// write makes the group durable, and then lets it be seen. It does not believe
// Pebble but the guard.
func (s *Store) write(g *group) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.broken = true
			s.guard.fail(fmt.Errorf("pebble panicked: %v", p))
			err = s.guard.failure()
		}
	}()
	if len(g.taken) == 0 {
		return g.batch.Close()
	}
	err = s.db.Apply(g.batch, pebble.Sync)
	if failure := s.guard.failure(); failure != nil {
		return failure
	}
	if err != nil {
		s.guard.fail(err)
		return s.guard.failure()
	}
	for stream, length := range g.lengths {
		s.heads.set(stream, length)
	}
	s.mark.move(g.end, g.values)
	return g.batch.Close()
}

// length returns how long a stream is.
func (s *Store) length(stream events.Stream) (events.Revision, error) {
	if length, ok := s.heads.get(stream); ok {
		return length, nil
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: indexKey(stream, 0), UpperBound: indexEnd(stream)})
	if err != nil {
		return 0, translated(err)
	}
	length := events.Revision(0)
	if it.Last() {
		length = events.Revision(lastUint64(it.Key()))
	}
	if err := it.Close(); err != nil {
		return 0, translated(err)
	}
	s.heads.set(stream, length)
	return length, nil
}

// recognise returns nil if a stream already holds the records of p right
// there, and a Conflict if it does not.
func (s *Store) recognise(p *pending, length events.Revision) error {
	conflict := &events.Conflict{Stream: p.stream, After: p.after}
	if p.through() > length {
		return conflict
	}
	end, _ := s.mark.now()
	at := streamCursor{store: s, stream: p.stream, after: p.after}
	for seen := 0; seen < len(p.values); {
		run, err := at.next(end, chunk{records: min(len(p.values)-seen, 256), bytes: chunkBytes})
		if err != nil {
			return err
		}
		for _, e := range run {
			if string(encode(e.Stream, e.Revision, e.Record)) != string(p.values[seen]) {
				return conflict
			}
			seen++
		}
	}
	return nil
}

// heads remembers the lengths of the streams used last: between one and two
// times maxHeads of them.
type heads struct {
	young, old map[events.Stream]events.Revision
}

func (h *heads) get(s events.Stream) (events.Revision, bool) {
	if length, ok := h.young[s]; ok {
		return length, true
	}
	length, ok := h.old[s]
	if ok {
		h.set(s, length)
	}
	return length, ok
}

func (h *heads) set(s events.Stream, length events.Revision) {
	if h.young == nil || len(h.young) >= maxHeads {
		h.young, h.old = map[events.Stream]events.Revision{}, h.young
	}
	h.young[s] = length
	delete(h.old, s)
}
