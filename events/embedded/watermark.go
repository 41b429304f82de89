package embedded

import (
	"sort"
	"sync"
	"sync/atomic"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// The bounds of the recent groups that a watermark keeps for followers.
const (
	recentGroups = 1 << 10 // groups
	recentBytes  = 4 << 20 // bytes of their records
)

// A watermark is the sequence of the last record that readers may see. It also keeps
// the last groups of records, so that followers at the end do not read the database.
//
// It is safe for concurrent use without a lock. The exception is advance: only the
// goroutine that finishes groups calls it, or refreshEnd while no group is in flight.
// Readers load an immutable watermarkState. A group is stored in the ring before the
// state that includes it, so a reader of the state finds the group unless it was
// dropped meanwhile.
type watermark struct {
	current       atomic.Pointer[watermarkState]
	recent        [recentGroups]atomic.Pointer[recentGroup] // ring, indexed by number modulo its length
	oldest        uint64                                    // the number of the oldest group in recent; used by advance alone
	keptBytes     int                                       // bytes of the groups in recent; used by advance alone
	notifications chan *subscription                        // lists of waiters for the notifier
	notifierGone  atomic.Bool                               // the notifier has ended
	notifier      sync.Once                                 // starts the notifier with the first follower

	followers atomic.Int32 // running followers; without followers no groups are kept
}

// A watermarkState is the watermark between two advances. end and groups are
// immutable.
type watermarkState struct {
	end       uint64                       // the sequence of the last visible record; 0: no record
	groups    uint64                       // groups kept so far, which is the number of the last one
	waiters   atomic.Pointer[subscription] // list of subscriptions to the next advance
	abandoned atomic.Uint32                // waiters that have given up and are still in the list
}

// A recentGroup holds the records of a commit group in memory. Followers share it,
// and decode its records once.
type recentGroup struct {
	number   uint64   // counts the groups from 1
	after    uint64   // the sequence before the first record
	values   [][]byte // encoded records, each with its sum; immutable
	bytes    int      // size of values
	decoding sync.Once
	decoded  []events.Entry // set by decoding; callers get copies
}

// newWatermark returns a watermark at a sequence, without recent groups.
func newWatermark(end uint64) *watermark {
	m := &watermark{oldest: 1, notifications: make(chan *subscription, 8)}
	m.current.Store(&watermarkState{end: end})
	return m
}

// load returns the sequence of the watermark and its current state. Waiters subscribe
// to this state and are notified at the next advance.
func (m *watermark) load() (uint64, *watermarkState) {
	at := m.current.Load()
	return at.end, at
}

// advance sets the watermark to the sequence end and notifies the waiters. The argument
// values has the encoded records since the last advance, each with room for its
// checksum. The watermark keeps values in memory for followers and owns it from then on,
// so the caller must not change it. Without followers the caller passes no values. If
// values does not have exactly one element for each record since the last advance, the
// watermark keeps none, and followers read the records from the database.
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

// keep adds a group to the ring and drops the oldest groups beyond the bounds. The
// newest group is always kept. Only advance calls it.
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

// groupAfter returns the group that contains the next record after a sequence. It
// returns nil if the watermark does not keep that group or no such record is visible;
// the caller then reads the database. It searches the ring by bisection, which takes
// about ten steps.
func (m *watermark) groupAfter(after uint64) *recentGroup {
	at := m.current.Load()
	count := min(at.groups, recentGroups)
	// The dropped groups are the oldest, so the search treats them as too old.
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

// group returns the group with a number, or nil if the ring does not have it.
func (m *watermark) group(number uint64) *recentGroup {
	p := m.recent[number%recentGroups].Load()
	if p == nil || p.number != number {
		return nil
	}
	return p
}

// end returns the sequence of the last record of the group.
func (p *recentGroup) end() uint64 { return p.after + uint64(len(p.values)) }

// entry returns the record at an index of the group. The first call decodes all
// records. The caller owns the bytes of the entry, which are copies.
func (p *recentGroup) entry(at uint64) events.Entry {
	p.decoding.Do(func() {
		p.decoded = make([]events.Entry, len(p.values))
		for i, value := range p.values {
			p.decoded[i] = layout.RawRecord(value[:len(value)-layout.SumLen]).Entry(p.after+uint64(i)+1, nil)
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
