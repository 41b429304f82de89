package calls

import (
	"hash/maphash"
	"iter"
)

// A callStore holds all calls by call number, which follows the order of their first
// event. Most calls of a long log are settled and rarely read. The store therefore
// keeps only unsettled calls as records. It packs a settled call, that is, it encodes
// the call into a page.
//
//   - The fold of an event checks out the calls that it changes ([State.checkOut]). A
//     packed call is decoded into a record, which replaces the packed one.
//   - At the end of the event, [State.packEnded] packs the settled calls that were
//     checked out. It appends the new encoding to the last page and leaves the old one
//     as garbage.
//   - [callStore.compact] copies the calls into new pages once half of the bytes are
//     garbage.
//
// Invariants, between events: A call has a record in live or a current encoding in
// packed, and never both. A call whose element of live is nil is settled. A packed
// call without a reply is in orphans. The index has one entry for each call. A call
// keeps its number, and no call is removed.
type callStore struct {
	// live holds the records by call number, with nil for a packed call.
	live []*callRecord
	// packed holds the encodings of the packed calls.
	packed pages
	// orphans holds the numbers of the packed calls that no reply asks for, so that
	// [State.Exceptions] need not decode every call. The number of an orphan that the
	// fold has checked out may remain until the call is packed again.
	orphans map[int]struct{}
	// index finds the number of a call by the hash of its key.
	index hashIndex
	// free holds zero records for reuse, at most maxFreeRecords.
	free []*callRecord
}

// seed is the seed of all hashes of keys. It differs in each process.
var seed = maphash.MakeSeed()

// A callHashKey is the part of a Key that [hash] hashes: the number of the session in
// place of its ID, the message ID, and a hash of the call ID. Hashes never enter a
// checkpoint.
type callHashKey struct {
	session int
	message [16]byte
	call    uint64
}

// hash returns the hash of a key. session is the number of the key's session.
func hash(session int, key Key) uint32 {
	return uint32(maphash.Comparable(seed, callHashKey{session, key.Message.Bytes(), maphash.String(seed, string(key.Call))}))
}

// newRecord returns a zero record, reusing a free one.
func (h *callStore) newRecord() *callRecord {
	n := len(h.free)
	if n == 0 {
		return &callRecord{}
	}
	c := h.free[n-1]
	h.free = h.free[:n-1]
	return c
}

// maxFreeRecords bounds the list of free records. After a burst of parallel calls the
// garbage collector frees the records above this bound.
const maxFreeRecords = 1024

// add gives a new call the next number, appends its record to live, and adds sum, the
// hash of its key, to the index.
func (h *callStore) add(c *callRecord, sum uint32) {
	c.number = len(h.live)
	h.live = append(h.live, c)
	h.packed.places = append(h.packed.places, pageOffset{})
	h.index.add(sum)
}

// put packs the call c: it appends the encoding, packed, to the pages and frees the
// record. The caller must not use c afterwards. put copies the bytes of packed.
func (h *callStore) put(c *callRecord, packed []byte) {
	h.packed.put(c.number, packed)
	h.mark(c.number, c.Asked.IsZero())
	h.live[c.number] = nil
	if len(h.free) < maxFreeRecords {
		*c = callRecord{}
		h.free = append(h.free, c)
	}
}

// mark adds the number of a packed call to orphans if the call is an orphan, and
// otherwise removes the number.
func (h *callStore) mark(number int, orphan bool) {
	if !orphan {
		delete(h.orphans, number)
		return
	}
	if h.orphans == nil {
		h.orphans = map[int]struct{}{}
	}
	h.orphans[number] = struct{}{}
}

// find returns the number of the call with a key; ok is false if there is no such
// call. session is the number of the key's session, and sum the hash of the key. find
// compares the keys of all calls with this hash, and may decompress a page for each.
func (s *State) find(r *pageReader, session int, key Key, sum uint32) (number int, ok bool) {
	for number := range s.store.index.all(sum) {
		if s.is(r, number, session, key) {
			return number, true
		}
	}
	return 0, false
}

// is reports whether the call with this number has the key. session is the number of
// the key's session. If the call is packed, is decodes only the key, in the order in
// which [State.packKey] writes its fields.
func (s *State) is(r *pageReader, number, session int, key Key) bool {
	if c := s.store.live[number]; c != nil {
		return c.Key() == key
	}
	p := checkpointCodec{b: r.packed(number), reading: true}
	n := 0
	unsigned(&p, &n)
	message := key.Message.Bytes()
	if n != session || string(p.take(16)) != string(message[:]) {
		return false
	}
	unsigned(&p, &n)
	return string(p.take(uint64(n))) == string(key.Call)
}

// reader returns a page reader for one goroutine that reads the State. Several
// goroutines may read at the same time, each with a page reader of its own.
func (s *State) reader() *pageReader { return &pageReader{pages: &s.store.packed} }

// folding returns the page reader of the goroutine that folds. Its cached pages stay
// valid from event to event, until a compaction.
func (s *State) folding() *pageReader {
	s.again.pages = &s.store.packed
	return &s.again
}

// read returns the record of the call with this number. If the call is packed, read
// returns a decoded copy, which the caller owns. Otherwise it returns the record of
// the State, which the caller must not change.
func (s *State) read(r *pageReader, number int) *callRecord {
	if c := s.store.live[number]; c != nil {
		return c
	}
	c := &callRecord{number: number}
	s.pack(&checkpointCodec{b: r.packed(number), reading: true, tables: &s.tables}, c)
	return c
}

// records yields all calls in order. It decodes each packed call, which costs about
// as much as decompressing all pages.
func (s *State) records() iter.Seq[*callRecord] {
	return func(yield func(*callRecord) bool) {
		r := s.reader()
		for i := range s.store.live {
			if !yield(s.read(r, i)) {
				return
			}
		}
	}
}

// unusual yields the unsettled calls and the orphans, which are the calls that no
// reply asks for, in order of number. It decodes only the packed orphans.
func (s *State) unusual() iter.Seq[*callRecord] {
	return func(yield func(*callRecord) bool) {
		r := s.reader()
		for i, c := range s.store.live {
			if c == nil {
				if _, orphan := s.store.orphans[i]; !orphan {
					continue
				}
				c = s.read(r, i)
			}
			if !yield(c) {
				return
			}
		}
	}
}

// checkOut returns the record of the call with this number for the fold, which may
// change the record until packEnded runs at the end of the event. If the call was
// packed, checkOut decodes it, and its bytes in the page become garbage.
func (s *State) checkOut(r *pageReader, number int) *callRecord {
	c := s.store.live[number]
	if c == nil {
		c = s.read(r, number)
		s.store.packed.garbage += len(r.packed(number))
		s.store.live[number] = c
	}
	s.taken = append(s.taken, c)
	return c
}

// packEnded packs the settled calls among those that the fold checked out for the
// current event. It packs each call once, even if the fold checked it out twice. Then
// it compacts the pages if at least half of their bytes are garbage.
func (s *State) packEnded() {
	if len(s.taken) == 0 {
		return
	}
	for _, c := range s.taken {
		if c.State == Settled && s.store.live[c.number] == c {
			p := checkpointCodec{b: s.scratch[:0], tables: &s.tables}
			s.pack(&p, c)
			s.scratch = p.b
			s.store.put(c, p.b)
		}
	}
	clear(s.taken)
	s.taken = s.taken[:0]
	if s.store.packed.needsCompaction() {
		s.store.compact()
		s.again = pageReader{}
	}
}

// compact copies the packed calls into new pages, in order of number, and drops the
// old pages with their garbage. It decompresses and compresses every page, and
// briefly holds both copies. Page readers of the old pages are invalid afterwards.
func (h *callStore) compact() {
	r := &pageReader{pages: &pages{}}
	*r.pages, h.packed = h.packed, pages{places: make([]pageOffset, len(h.live))}
	for i, live := range h.live {
		if live == nil {
			h.packed.put(i, r.packed(i))
		}
	}
}
