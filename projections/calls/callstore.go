package calls

import (
	"hash/maphash"
	"iter"
)

// A callStore holds all calls by number, in the order of their first event.
// Settled calls are encoded in pages, as most calls of a long log are settled
// and rarely read; others are records.
type callStore struct {
	live    []*callRecord // by number; nil where it is packed
	packed  pages
	orphans map[int]struct{} // that are packed, and were never asked for
	index   hashIndex
	free    []*callRecord // for calls to come; each is zero
}

var seed = maphash.MakeSeed()

// A callHashKey is hashed to find a call. The hash is valid in this process
// alone.
type callHashKey struct {
	session int
	message [16]byte
	call    uint64
}

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

// maxFreeRecords bounds the free list.
const maxFreeRecords = 1024

// add appends a call, and indexes the hash of its key.
func (h *callStore) add(c *callRecord, sum uint32) {
	c.number = len(h.live)
	h.live = append(h.live, c)
	h.packed.places = append(h.packed.places, pageOffset{})
	h.index.add(sum)
}

// put replaces the record of a call by its encoding.
func (h *callStore) put(c *callRecord, packed []byte) {
	h.packed.put(c.number, packed)
	h.mark(c.number, c.Asked.IsZero())
	h.live[c.number] = nil
	if len(h.free) < maxFreeRecords {
		*c = callRecord{}
		h.free = append(h.free, c)
	}
}

// mark records whether an encoded call is an orphan.
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

// find returns the number of the call with a key, whose hash is sum.
func (s *State) find(r *pageReader, session int, key Key, sum uint32) (number int, ok bool) {
	for number := range s.store.index.all(sum) {
		if s.is(r, number, session, key) {
			return number, true
		}
	}
	return 0, false
}

// is reports whether a call has a key. It decodes only the key.
func (s *State) is(r *pageReader, number, session int, key Key) bool {
	if c := s.store.live[number]; c != nil {
		return c.Key() == key
	}
	p := codec{b: r.packed(number), reading: true}
	n := 0
	unsigned(&p, &n)
	message := key.Message.Bytes()
	if n != session || string(p.take(16)) != string(message[:]) {
		return false
	}
	unsigned(&p, &n)
	return string(p.take(uint64(n))) == string(key.Call)
}

// reader returns a new page reader.
func (s *State) reader() *pageReader { return &pageReader{pages: &s.store.packed} }

// folding returns the page reader of the goroutine that folds.
func (s *State) folding() *pageReader {
	s.again.pages = &s.store.packed
	return &s.again
}

// read returns a call by number. For an encoded call it returns a decoded
// copy.
func (s *State) read(r *pageReader, number int) *callRecord {
	if c := s.store.live[number]; c != nil {
		return c
	}
	c := &callRecord{number: number}
	s.pack(&codec{b: r.packed(number), reading: true, tables: &s.tables}, c)
	return c
}

// records yields all calls in order.
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

// unusual yields the open and the orphaned calls in order, and decodes no
// others.
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

// checkOut returns a call by number that may be changed until the end of the
// event that is being folded.
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

// packEnded encodes the settled calls among the ones checked out.
func (s *State) packEnded() {
	if len(s.taken) == 0 {
		return
	}
	for _, c := range s.taken {
		if c.State == Settled && s.store.live[c.number] == c {
			p := codec{b: s.scratch[:0], tables: &s.tables}
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

// compact rewrites the pages without garbage.
func (h *callStore) compact() {
	r := &pageReader{pages: &pages{}}
	*r.pages, h.packed = h.packed, pages{places: make([]pageOffset, len(h.live))}
	for i, live := range h.live {
		if live == nil {
			h.packed.put(i, r.packed(i))
		}
	}
}
