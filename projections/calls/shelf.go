package calls

import (
	"encoding/binary"
	"hash/maphash"
	"iter"
)

// A shelf holds all calls by number, in the order in which the log first names
// them. A call that ended is packed, as most calls of a long log have ended
// and are not asked about again; others are held as they are.
type shelf struct {
	live   []*record         // by number; nil where it is packed
	places []uint64          // by number, of what is packed: the page and the place in it
	pages  [][]byte          // of packed calls, each with its length before it
	spent  int               // bytes of pages that no place names any more
	first  map[uint64]uint32 // by hash of the key, the number of the last such call, from 1
	next   []uint32          // by number, the one before it with the same hash, from 1
}

// pageSize is how many bytes of packed calls are together. One never moves
// while others are added.
const pageSize = 256 << 10

var seed = maphash.MakeSeed()

// hashed is what calls are found by. It says nothing outside of this process.
type hashed struct {
	session int
	message [16]byte
	call    uint64
}

func hash(session int, key Key) uint64 {
	return maphash.Comparable(seed, hashed{session, key.Message.Bytes(), maphash.String(seed, string(key.Call))})
}

// add puts a call at the end, which is live.
func (h *shelf) add(c *record) {
	c.number = len(h.live)
	h.live = append(h.live, c)
	h.places = append(h.places, 0)
	h.enter(c.session, c.Key())
}

// enter makes the last call one that is found.
func (h *shelf) enter(session int, key Key) {
	if h.first == nil {
		h.first = map[uint64]uint32{}
	}
	sum := hash(session, key)
	h.next = append(h.next, h.first[sum])
	h.first[sum] = uint32(len(h.next))
}

// packed returns the bytes of a call that is packed.
func (h *shelf) packed(number int) []byte {
	place := h.places[number]
	page := h.pages[place>>32][uint32(place):]
	n, size := binary.Uvarint(page)
	return page[size : size+int(n)]
}

// put adds packed bytes as those of a call, which is live no more.
func (h *shelf) put(number int, packed []byte) {
	need := len(packed) + binary.MaxVarintLen32
	if len(h.pages) == 0 || cap(h.pages[len(h.pages)-1])-len(h.pages[len(h.pages)-1]) < need {
		h.pages = append(h.pages, make([]byte, 0, max(pageSize, need)))
	}
	last := len(h.pages) - 1
	h.places[number] = uint64(last)<<32 | uint64(len(h.pages[last]))
	h.pages[last] = append(binary.AppendUvarint(h.pages[last], uint64(len(packed))), packed...)
	h.live[number] = nil
}

// find returns the number of a call.
func (s *State) find(session int, key Key) (number int, ok bool) {
	for n := s.shelf.first[hash(session, key)]; n != 0; n = s.shelf.next[n-1] {
		if s.is(int(n-1), session, key) {
			return int(n - 1), true
		}
	}
	return 0, false
}

// is reports whether a call is that of a key.
func (s *State) is(number, session int, key Key) bool {
	if c := s.shelf.live[number]; c != nil {
		return c.Key() == key
	}
	p := packer{b: s.shelf.packed(number), reading: true}
	n := 0
	unsigned(&p, &n)
	message := key.Message.Bytes()
	if n != session || string(p.take(16)) != string(message[:]) {
		return false
	}
	unsigned(&p, &n)
	return string(p.take(uint64(n))) == string(key.Call)
}

// read returns a call by number. One that is packed stays so: the record is a
// copy.
func (s *State) read(number int) *record {
	if c := s.shelf.live[number]; c != nil {
		return c
	}
	c := &record{number: number}
	s.pack(&packer{b: s.shelf.packed(number), reading: true, tables: &s.tables}, c)
	return c
}

// records yields all calls in order.
func (s *State) records() iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for i := range s.shelf.live {
			if !yield(s.read(i)) {
				return
			}
		}
	}
}

// take returns a call by number as one that may be changed until the event
// that is being folded is over.
func (s *State) take(number int) *record {
	c := s.shelf.live[number]
	if c == nil {
		c = s.read(number)
		s.shelf.spent += len(s.shelf.packed(number))
		s.shelf.live[number] = c
	}
	s.taken = append(s.taken, c)
	return c
}

// giveBack packs the calls that were taken and have ended.
func (s *State) giveBack() {
	for _, c := range s.taken {
		if c.State == Settled && s.shelf.live[c.number] == c {
			p := packer{b: s.scratch[:0], tables: &s.tables}
			s.pack(&p, c)
			s.scratch = p.b
			s.shelf.put(c.number, p.b)
		}
	}
	clear(s.taken)
	s.taken = s.taken[:0]
	if s.shelf.spent > 4*pageSize && s.shelf.spent > len(s.shelf.pages)*pageSize/2 {
		s.shelf.tidy()
	}
}

// tidy packs anew, without what no place names any more.
func (h *shelf) tidy() {
	old := shelf{places: h.places, pages: h.pages}
	h.places, h.pages, h.spent = make([]uint64, len(old.places)), nil, 0
	for i, live := range h.live {
		if live == nil {
			h.put(i, old.packed(i))
		}
	}
}
