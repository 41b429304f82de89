package embedded

import (
	"sort"
	"sync"
	"sync/atomic"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of what a mark keeps.
const (
	recentGroups = 1 << 10
	recentBytes  = 4 << 20
)

// A mark is the sequence of the last durable record, at which readers stop. It
// keeps the groups that became durable last, so that followers at the end do
// not read the database. It is safe for concurrent use but for move, whose
// calls come one after the other. Nobody waits for a lock in it.
type watermark struct {
	current       atomic.Pointer[watermarkState]
	recent        [recentGroups]atomic.Pointer[recentGroup] // by number, modulo its length
	oldest        uint64                                    // move's: the number of the first group that is keptBytes
	keptBytes     int                                       // move's: bytes in the groups that are keptBytes
	notifications chan *waiter                              // who is to be woken by the herald
	notifierGone  atomic.Bool                               // the herald has gone
	notifier      sync.Once                                 // its beginning

	followers atomic.Int32 // loops of followers, for whom groups are keptBytes
}

// A moment is a mark between two moves.
type watermarkState struct {
	end       uint64
	groups    uint64 // how many were published: the number of the last one
	waiters   atomic.Pointer[waiter]
	abandoned atomic.Uint32 // how many wait no more, and are among the waiters
}

// recentGroup is a group of records that became durable together.
type recentGroup struct {
	number   uint64
	after    uint64   // the sequence that the first one follows
	values   [][]byte // as they are keptBytes; never written to
	bytes    int
	decoding sync.Once
	decoded  []events.Entry
}

func newWatermark(end uint64) *watermark {
	m := &watermark{oldest: 1, notifications: make(chan *waiter, 8)}
	m.current.Store(&watermarkState{end: end})
	return m
}

// now returns the mark, and what tells when it moves.
func (m *watermark) load() (uint64, *watermarkState) {
	at := m.current.Load()
	return at.end, at
}

// move sets the mark to end and wakes who waits for that. The values are those
// of the records since the mark that was, with room for a sum; they are the
// mark's from then on, and nobody writes to them. They may be left out, and are then read from
// the database.
func (m *watermark) advance(end uint64, values [][]byte) {
	before := m.current.Load()
	next := &watermarkState{end: end, groups: before.groups}
	if uint64(len(values)) == end-before.end {
		next.groups++
		m.keep(&recentGroup{number: next.groups, after: before.end, values: values})
	}
	m.current.Store(next)
	m.wake(before.waiters.Swap(nil))
}

// keep adds a group, in place of those that there is no more room for.
func (m *watermark) keep(p *recentGroup) {
	for _, value := range p.values {
		p.bytes += len(value)
	}
	m.keptBytes += p.bytes
	for ; m.oldest < p.number && (m.keptBytes > recentBytes || p.number-m.oldest >= recentGroups); m.oldest++ {
		m.keptBytes -= m.recent[m.oldest%recentGroups].Swap(nil).bytes
	}
	m.recent[p.number%recentGroups].Store(p)
}

// holding returns the group with the record that follows a sequence, and nil if
// it is not keptBytes.
func (m *watermark) groupAfter(after uint64) *recentGroup {
	at := m.current.Load()
	count := min(at.groups, recentGroups)
	// Groups that are no longer keptBytes are the first of them.
	back := sort.Search(int(count), func(back int) bool {
		p := m.group(at.groups - uint64(back))
		return p == nil || p.after <= after
	})
	if back == int(count) {
		return nil
	}
	p := m.group(at.groups - uint64(back))
	if p == nil || p.after > after || after >= p.end() {
		return nil
	}
	return p
}

func (m *watermark) group(number uint64) *recentGroup {
	p := m.recent[number%recentGroups].Load()
	if p == nil || p.number != number {
		return nil
	}
	return p
}

func (p *recentGroup) end() uint64 { return p.after + uint64(len(p.values)) }

// entry returns a record, by its place in the group. It decodes all of them
// once; the bytes are the caller's.
func (p *recentGroup) entry(at uint64) events.Entry {
	p.decoding.Do(func() {
		p.decoded = make([]events.Entry, len(p.values))
		for i, value := range p.values {
			p.decoded[i] = raw(value[:len(value)-sumLen]).entry(p.after+uint64(i)+1, nil)
		}
	})
	e := p.decoded[at]
	own := append(append(make([]byte, 0, len(e.Data)+len(e.Metadata)), e.Data...), e.Metadata...)
	if cut := len(e.Data); cut > 0 {
		e.Data = own[:cut:cut]
	}
	if cut := len(e.Data); len(e.Metadata) > 0 {
		e.Metadata = own[cut:]
	}
	return e
}
