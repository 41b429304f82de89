package calls

import (
	"hash/maphash"
	"iter"
)

// A callStore holds all calls by number, in the order in which the log first names
// them. A call that ended is packed, as most calls of a long log have ended
// and are not asked about again; others are held as they are.
type callStore struct {
	live    []*callRecord // by number; nil where it is packed
	packed  pages
	orphans map[int]struct{} // that are packed, and were never asked for
	index   hashIndex
	free    []*callRecord // for calls to come; each is zero
}

var seed = maphash.MakeSeed()

// callHashKey is what calls are found by. It says nothing outside of this process.
type callHashKey struct {
	session int
	message [16]byte
	call    uint64
}

func hash(session int, key Key) uint32 {
	return uint32(maphash.Comparable(seed, callHashKey{session, key.Message.Bytes(), maphash.String(seed, string(key.Call))}))
}

// newRecord returns a record that is zero.
func (h *callStore) newRecord() *callRecord {
	n := len(h.free)
	if n == 0 {
		return &callRecord{}
	}
	c := h.free[n-1]
	h.free = h.free[:n-1]
	return c
}

// maxFreeRecords is how many records wait to be used again.
const maxFreeRecords = 1024

// add puts a call at the end, which is live. Its key has a hash.
func (h *callStore) add(c *callRecord, sum uint32) {
	c.number = len(h.live)
	h.live = append(h.live, c)
	h.packed.places = append(h.packed.places, pageOffset{})
	h.index.add(sum)
}

// put holds the packed bytes of a call in place of its record.
func (h *callStore) put(c *callRecord, packed []byte) {
	h.packed.put(c.number, packed)
	h.mark(c.number, c.Asked.IsZero())
	h.live[c.number] = nil
	if len(h.free) < maxFreeRecords {
		*c = callRecord{}
		h.free = append(h.free, c)
	}
}

// mark says whether a call that is packed was never asked for.
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

// find returns the number of a call whose key has a hash.
func (s *State) find(r *pageReader, session int, key Key, sum uint32) (number int, ok bool) {
	for number := range s.store.index.all(sum) {
		if s.is(r, number, session, key) {
			return number, true
		}
	}
	return 0, false
}

// is reports whether a call is that of a key.
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

// reader returns what reads packed calls.
func (s *State) reader() *pageReader { return &pageReader{pages: &s.store.packed} }

// folding returns what reads packed calls for whoever folds.
func (s *State) folding() *pageReader {
	s.again.pages = &s.store.packed
	return &s.again
}

// read returns a call by number. One that is packed stays so: the record is a
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

// unusual yields in order the calls that have no end, or were never asked for.
// Of the others it unpacks none.
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

// checkOut returns a call by number as one that may be changed until the event
// that is being folded is over.
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

// packEnded packs the calls that were taken and have ended.
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

// compact packs anew, without what no place names any more.
func (h *callStore) compact() {
	r := &pageReader{pages: &pages{}}
	*r.pages, h.packed = h.packed, pages{places: make([]pageOffset, len(h.live))}
	for i, live := range h.live {
		if live == nil {
			h.packed.put(i, r.packed(i))
		}
	}
}
