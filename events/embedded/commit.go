package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// maxAppend bounds the data and metadata of one append, in bytes. A batch of Pebble
// can be four times as large, which leaves room for keys and headers.
const maxAppend = 1 << 30

// An appendRequest is an append that waits for the committer. It has one owner at a
// time: the goroutine of Append until it calls queue.put, then the queue, then the
// committer, and again the goroutine of Append after it has received the result from
// done. The committer sends exactly one result. It sends none if the goroutine of Append
// has withdrawn the request. Requests are reused for later appends.
type appendRequest struct {
	stream  events.Stream   // of all records
	after   events.Revision // the length that the caller saw
	values  []byte          // the encoded records, one after the other, each with room for its sum
	encoded []encodedRecord // the bounds and sums of the records in values
	size    int             // bytes reserved in the queue
	first   uint64          // sequence of the first record, once the committer has added it to a group
	done    chan error      // of capacity 1, so that the committer does not wait for a caller that gave up
}

// An encodedRecord is the end of one record in appendRequest.values, and its
// checksum.
type encodedRecord struct {
	end int    // offset after its sum, which is its last four bytes
	sum uint32 // checksum of the value alone; finishSum adds the sequence
}

// newLength returns the length of the stream if the append succeeds.
func (p *appendRequest) newLength() events.Revision { return p.after + events.Revision(len(p.encoded)) }

// value returns the encoded record at an index, without its sum.
func (p *appendRequest) value(i int) []byte {
	start := 0
	if i > 0 {
		start = p.encoded[i-1].end
	}
	return p.values[start : p.encoded[i].end-layout.SumLen]
}

// maxSpareRequestBytes bounds the buffer of a request that is kept for reuse, in
// bytes. The garbage collector frees larger ones, so that one large append does not
// occupy memory.
const maxSpareRequestBytes = 32 << 10

// recycle keeps a request for reuse. The goroutine that calls it has received the result
// of the request, so the committer no longer refers to the request.
func (s *Store) recycle(p *appendRequest) {
	if cap(p.values) <= maxSpareRequestBytes {
		p.stream, p.values, p.encoded = "", p.values[:0], p.encoded[:0]
		s.spare.Put(p)
	}
}

// errMismatch is the committer's result for an append whose revision is not the length
// of its stream. The goroutine that called Append then compares the append with the
// durable records: it is a repeat or a conflict.
var errMismatch = errors.New("append does not follow the end of its stream")

// Append implements events.Store. It returns when the append is as durable as the
// Durability of the store says.
//
// An append whose context ends while it waits in the queue adds no record. If the
// context ends after the committer has taken the append, its outcome is unknown.
// After a failed write every append fails, and the outcome of the appends in flight
// is unknown. To settle an unknown outcome, append the same records at the same
// revision again: to the same store after [ErrPaused], and otherwise after opening
// the store again. The second append adds the records only if the first one did not.
func (s *Store) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	_, err := s.Place(ctx, stream, after, records...)
	return err
}

// Place appends like Append and returns the position of the last record. For a
// repeated append this is the position that the record already has.
func (s *Store) Place(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) (events.Position, error) {
	if err := context.Cause(ctx); err != nil {
		return events.Position{}, err
	}
	last, err := s.append(ctx, stream, after, records)
	if err == nil {
		return events.NewPosition(last, last), nil
	}
	if err == context.Cause(ctx) || errors.Is(err, events.ErrConflict) || errors.Is(err, events.ErrClosed) {
		return events.Position{}, err
	}
	return events.Position{}, fmt.Errorf("append to %s after revision %d: %w", stream, after, err)
}

// append checks and encodes the records, queues them and waits for the result. It
// returns the sequence of the last record. The order is: reserve bytes in the queue,
// encode into a request, put it. Encoding runs on the goroutine of the caller, so the
// committer copies bytes only.
func (s *Store) append(ctx context.Context, stream events.Stream, after events.Revision, records []events.Record) (last uint64, err error) {
	if s.pinned != nil {
		return 0, s.use(func() error { return ErrReadOnly })
	}
	if err := s.check(stream, after, records); err != nil {
		return 0, err
	}
	size := 0
	for _, r := range records {
		size += layout.EncodedLen(stream, r) + layout.SumLen
	}
	if err := s.queue.admit(ctx, stream, size); err != nil {
		return 0, err
	}
	p := s.prepare(stream, after, records, size)
	if err := s.queue.put(p); err != nil {
		return 0, err
	}
	select {
	case err := <-p.done:
		last := p.first + uint64(len(p.encoded)) - 1
		if err == errMismatch {
			last, err = s.checkRepeat(ctx, p)
		}
		s.recycle(p)
		return last, err
	case <-ctx.Done():
		s.queue.withdraw(p)
		return 0, context.Cause(ctx)
	}
}

// prepare encodes the records of an append into a request of size bytes, with a
// checksum of each value. The checksum must also cover the sequence of the record,
// which only the committer knows. So prepare leaves room for the checksum, and put
// completes it. The request keeps no reference to the bytes of the caller.
func (s *Store) prepare(stream events.Stream, after events.Revision, records []events.Record, size int) *appendRequest {
	p, ok := s.spare.Get().(*appendRequest)
	if !ok {
		p = &appendRequest{done: make(chan error, 1)}
	}
	p.stream, p.after, p.size = stream, after, size
	p.values = slices.Grow(p.values, size)
	for i, r := range records {
		start := len(p.values)
		p.values = layout.AppendRecord(p.values, stream, after+events.Revision(i+1), r)
		sum := layout.Checksum(p.values[start:])
		p.values = append(p.values, 0, 0, 0, 0)
		p.encoded = append(p.encoded, encodedRecord{end: len(p.values), sum: sum})
	}
	return p
}

// check returns an error if the layout cannot store the append or if it exceeds a
// limit: events.ErrBadRecord, events.ErrTooLarge, or a Conflict for a revision that
// no stream can have.
func (s *Store) check(stream events.Stream, after events.Revision, records []events.Record) error {
	switch {
	case stream == "":
		return fmt.Errorf("%w: there is no stream", events.ErrBadRecord)
	case len(stream) > layout.MaxStream || strings.IndexByte(string(stream), 0) >= 0:
		return fmt.Errorf("%w: the stream's name has a zero byte or is longer than %d bytes", events.ErrBadRecord, layout.MaxStream)
	case len(records) == 0:
		return fmt.Errorf("%w: there are no records", events.ErrBadRecord)
	case uint64(after) > layout.MaxSequence-uint64(len(records)):
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

// checkRecord checks one record. It returns ErrBadRecord or events.ErrTooLarge with
// the kind and ID of the record.
func (s *Store) checkRecord(r events.Record) error {
	if err := r.Valid(); err != nil {
		return err
	}
	switch size := len(r.Data) + len(r.Metadata); {
	case len(r.Kind) > layout.MaxKind:
		return fmt.Errorf("%w: the kind of %s is longer than %d bytes", events.ErrBadRecord, r.ID, layout.MaxKind)
	case !time.UnixMicro(r.Time.UnixMicro()).Equal(r.Time):
		return fmt.Errorf("%w: the time of %s %s is too far away", events.ErrBadRecord, r.Kind, r.ID)
	case size > s.maxRecord:
		return fmt.Errorf("%w: %s %s has %d bytes, and the limit is %d", events.ErrTooLarge, r.Kind, r.ID, size, s.maxRecord)
	}
	return nil
}

// checkRepeat decides on an append whose revision is not the length of its stream. It
// reads the stream and compares encoded bytes. If the stream has exactly these records
// at these revisions, the append is a repeat, and checkRepeat returns the sequence of
// the last record. Otherwise it returns a Conflict. It runs on the goroutine of the
// caller, after the group of the append was finished, so it sees durable records only.
func (s *Store) checkRepeat(ctx context.Context, p *appendRequest) (last uint64, err error) {
	seen := 0
	for e, err := range s.Read(ctx, p.stream, p.after) {
		switch {
		case err != nil:
			return 0, err
		case string(layout.Encode(e.Stream, e.Revision, e.Record)) != string(p.value(seen)):
			return 0, &events.Conflict{Stream: p.stream, After: p.after}
		}
		if seen++; seen == len(p.encoded) {
			last, _ = e.Position.Parts()
			return last, nil
		}
	}
	return 0, &events.Conflict{Stream: p.stream, After: p.after}
}

// A commitGroup is a group of appends that one Pebble batch writes and one sync makes
// durable. The committer builds the group. Then it belongs to the goroutine that
// finishes it: the committer itself, or syncLoop.
type commitGroup struct {
	batch      *pebble.Batch // nil: no append of the group adds records
	end        uint64        // sequence of the last record of this group, or of the group before
	records    int
	bytes      int              // of the records
	size       int              // bytes that its requests reserved in the queue
	added      []*appendRequest // requests whose records are in the batch
	mismatched []*appendRequest // requests that do not follow the end of their stream
	begun      time.Time        // when the committer started to write it, for CommitStats
}

// commitLoop is the committer, the only goroutine that writes records. For each group it
// takes the waiting appends, compares each with the length of its stream, gives the
// records consecutive sequences, and writes one batch to the log.
//
// Under Sync it passes the group to syncLoop and builds the next one while the log
// syncs; at most maxInFlight groups are in flight. Under Interval, or after an error, it
// finishes the group itself. It ends when the queue is closed. It locks gate for reading
// before it builds a group, and finish unlocks gate, so a Resumer cannot reopen the
// database in between.
func (s *Store) commitLoop() {
	defer close(s.inFlight)
	var taken []*appendRequest
	for {
		taken = s.queue.take(taken[:0])
		if len(taken) == 0 {
			return
		}
		s.gate.RLock() // until finish
		g := s.buildGroup(taken)
		clear(taken)
		g.begun = time.Now()
		err := s.writeError(g.index())
		if err == nil {
			err = s.apply(g)
		}
		if s.durability.interval > 0 || err != nil {
			s.finish(g, err)
			continue
		}
		s.inFlight <- g
	}
}

// syncLoop waits for the sync of each group and finishes the group. It takes the
// groups in the order of their sequences, so the watermark never passes a record that
// is not durable.
func (s *Store) syncLoop() {
	for g := range s.inFlight {
		var err error
		if g.batch != nil {
			err = g.batch.SyncWait()
		}
		s.finish(g, s.writeError(err))
	}
}

// buildGroup puts requests into a group and returns it. A request that cannot be
// added is answered with its error and is not in the group. The committer calls it.
func (s *Store) buildGroup(taken []*appendRequest) *commitGroup {
	g := &commitGroup{end: s.end}
	room := 0
	for _, p := range taken {
		g.size += p.size
		room += p.batchLen()
	}
	for _, p := range taken {
		err := s.failure()
		if err == nil {
			err = s.add(g, p, room)
		}
		if err != nil {
			p.done <- err
		}
	}
	s.end = g.end
	return g
}

// add adds the records of a request to a group and its batch. If the revision of the
// request is not the length of its stream, add puts the request into g.mismatched
// instead. finish answers a mismatched request when the group is durable, so that its
// caller can compare it with durable records. A group may have several requests of one
// stream, because add updates the cached length. add creates the batch for the first
// request, with a capacity of room bytes.
func (s *Store) add(g *commitGroup, p *appendRequest, room int) error {
	h, err := s.streamLength(p.stream)
	if err != nil {
		return err
	}
	if h.length != p.after {
		g.mismatched = append(g.mismatched, p)
		return nil
	}
	if g.batch == nil {
		g.batch = s.db.NewBatchWithSize(room)
	}
	p.first = g.end + 1
	for i := range p.encoded {
		g.end++
		// A request that is in the batch in part must not be written: the store stops.
		if err := s.writeError(p.put(g.batch, i, g.end)); err != nil {
			return err
		}
	}
	g.records += len(p.encoded)
	g.bytes += len(p.values)
	g.added = append(g.added, p)
	h.length = p.newLength()
	return nil
}

// batchLen returns an upper bound of the bytes that the request takes in a batch.
func (p *appendRequest) batchLen() int {
	const around = 1 + 2*binary.MaxVarintLen32 // overhead of a batch for each key and value
	return p.size + len(p.encoded)*(around+layout.EntryKeyLen+around+layout.IndexKeyLen(p.stream)+8)
}

// put adds the record at an index to a batch, under its sequence. It copies the
// encoded value and completes the checksum with the sequence.
func (p *appendRequest) put(batch *pebble.Batch, i int, seq uint64) error {
	value := p.value(i)
	entry := batch.SetDeferred(layout.EntryKeyLen, len(value)+layout.SumLen)
	layout.PutEntryKey(entry.Key, seq)
	copy(entry.Value, value)
	binary.BigEndian.PutUint32(entry.Value[len(value):], layout.FinishSum(p.encoded[i].sum, seq))
	return entry.Finish()
}

// index adds the index entries of the group to the batch, after all records. The
// batch then has two runs of sorted keys, one of records and one of index entries.
// Pebble inserts a key next to the previous one without a search if the keys are
// sorted.
func (g *commitGroup) index() error {
	for _, p := range g.added {
		for i := range p.encoded {
			index := g.batch.SetDeferred(layout.IndexKeyLen(p.stream), 8)
			layout.PutIndexKey(index.Key, p.stream, p.after+events.Revision(i+1))
			binary.BigEndian.PutUint64(index.Value, p.first+uint64(i))
			if err := index.Finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply writes a group to the log and to Pebble's memtable. Under Sync it starts the
// sync of the log and does not wait for it; syncLoop does. A panic of Pebble stops
// the store.
func (s *Store) apply(g *commitGroup) (err error) {
	if g.batch == nil {
		return nil
	}
	defer s.recoverPanic(&err)
	s.written.Store(true)
	if s.durability.interval > 0 {
		return s.writeError(s.db.Apply(g.batch, pebble.NoSync))
	}
	return s.writeError(s.db.ApplyNoSyncWait(g.batch, pebble.Sync))
}

// recoverPanic turns a panic of Pebble into a failure that stops the store for good,
// and sets *err to it. Its caller defers it. The database is not closed afterwards.
func (s *Store) recoverPanic(err *error) {
	if p := recover(); p != nil {
		s.broken.Store(true)
		s.failStop.Fail(fmt.Errorf("pebble panicked: %v", p))
		*err = s.failure()
	}
}

// writeError returns the error of a write. Pebble may report success for a write that
// failed, so writeError asks the fail-stop file system first. It stops the store for
// an error that only Pebble reports.
func (s *Store) writeError(err error) error {
	if failure := s.failure(); failure != nil {
		return failure
	}
	if err != nil {
		s.failStop.Fail(err)
		return s.failure()
	}
	return nil
}

// finish ends a group whose write or sync returned err. If err is nil, it first advances
// the watermark past the group, so that a caller whose Append has returned can read its
// records. It then sends each request its result. The result of an added request is err.
// The result of a mismatched request is err, or errMismatch if err is nil. From then on
// the caller owns its request again. Last, finish releases the bytes of the group in the
// queue and unlocks gate.
func (s *Store) finish(g *commitGroup, err error) {
	if err == nil && g.batch != nil {
		s.watermark.advance(g.end, s.recentValues(g))
		s.wantSync()
		err = g.batch.Close()
		s.storeStats.record(g, time.Since(g.begun))
	}
	for _, p := range g.added {
		p.done <- err
	}
	if err == nil {
		err = errMismatch
	}
	for _, p := range g.mismatched {
		p.done <- err
	}
	s.queue.finished(g.size)
	s.gate.RUnlock()
}

// recentValues returns copies of the encoded records of a group, each with room for
// its checksum, for the watermark. All share one buffer. It returns nil without
// followers, to spare the copy.
func (s *Store) recentValues(g *commitGroup) [][]byte {
	if s.watermark.followers.Load() == 0 {
		return nil
	}
	slab := make([]byte, 0, g.bytes)
	values := make([][]byte, 0, g.records)
	for _, p := range g.added {
		at, start := len(slab), 0
		slab = append(slab, p.values...)
		for _, r := range p.encoded {
			values = append(values, slab[at+start:at+r.end:at+r.end])
			start = r.end
		}
	}
	return values
}

// streamLength returns the cached length of a stream, which includes the appends in
// flight. If the length is not cached, streamLength reads the last index entry of the
// stream, one seek in the database. Only the committer calls it, and it changes the
// length in place.
func (s *Store) streamLength(stream events.Stream) (*streamLength, error) {
	if h := s.lengthCache.get(stream); h != nil {
		return h, nil
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: layout.IndexKey(stream, 0), UpperBound: layout.IndexEnd(stream)})
	if err != nil {
		return nil, layout.AsDamaged(err)
	}
	length := events.Revision(0)
	if it.Last() {
		length = events.Revision(layout.LastUint64(it.Key()))
	}
	if err := it.Close(); err != nil {
		return nil, layout.AsDamaged(err)
	}
	return s.lengthCache.add(stream, length), nil
}
