package runner

import (
	"crypto/sha256"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
)

// The bounds of a cycle of calls.
const (
	// maxPeriod is the longest cycle, in calls, that the detector finds.
	maxPeriod = 4
	// DefaultRounds is the number of repetitions that make a loop where Config.Rounds is
	// zero.
	DefaultRounds = 3
)

// A callDigest is the SHA-256 of a tool name with its canonical input. Equal digests are
// equal calls.
type callDigest [sha256.Size]byte

// digest returns the digest of a call. It hashes an input without a canonical form, which
// is not JSON, unchanged.
func digest(c domain.Call) callDigest {
	input := c.Input
	if canonical, err := domain.Canonical(c.Input); err == nil {
		input = canonical
	}
	h := sha256.New()
	h.Write([]byte(c.Name + "\x00"))
	h.Write(input)
	return callDigest(h.Sum(nil))
}

// A loopDetector finds cycles in a session: the same one to maxPeriod calls, repeated
// in the same order. It reads each message once, so the cost of a step is proportional
// to the number of new calls. It is not safe for concurrent use.
type loopDetector struct {
	// rounds is the number of repetitions that make a loop.
	rounds int
	// read is the number of messages of the session that were read.
	read int
	// digests has the latest calls since the last prompt, oldest first, at most
	// maxPeriod*rounds.
	digests []callDigest
	// found has the calls of the last reply that close a loop, each with the event that
	// reports it.
	found map[messageCall]events.LoopDetected
}

// newLoopDetector returns a detector that reports a cycle after rounds repetitions.
func newLoopDetector(rounds int) *loopDetector {
	return &loopDetector{rounds: rounds, found: map[messageCall]events.LoopDetected{}}
}

// advance reads the new messages of the session, which must not be forgotten yet. A prompt of a person resets the
// detector, because a repeated request by a person is no loop. In a session with a
// parent, a prompt does not reset the detector, because it comes from the parent agent,
// which may itself loop.
func (l *loopDetector) advance(s *conversation.State) {
	for ; l.read < s.Forgotten.Messages()+len(s.Messages); l.read++ {
		m := s.Messages[l.read-s.Forgotten.Messages()]
		if m.Prompt != nil && s.Parent.IsZero() {
			l.digests = l.digests[:0]
		}
		if m.Reply == nil {
			continue
		}
		clear(l.found)
		for _, c := range m.Reply.Calls {
			l.add(m.ID, c.Call)
		}
	}
}

// add appends a call to the window of digests, and stores the loop that the call closes,
// if any. A call that continues a loop closes it again.
func (l *loopDetector) add(message domain.MessageID, c domain.Call) {
	if len(l.digests) == maxPeriod*l.rounds {
		l.digests = append(l.digests[:0], l.digests[1:]...)
	}
	l.digests = append(l.digests, digest(c))
	if period, ok := l.period(); ok {
		l.found[messageCall{message, c.ID}] = events.LoopDetected{
			Message: message, Call: c.ID, Tool: registry.ShortName(c.Name), Period: period, Rounds: l.rounds,
		}
	}
}

// period returns the length of the shortest cycle, of at most maxPeriod calls, that the
// last calls repeat rounds times in a row. It returns false if there is no such cycle. It
// compares at most maxPeriod*rounds digests for each length.
func (l *loopDetector) period() (period int, ok bool) {
	for period := 1; period <= maxPeriod && period*l.rounds <= len(l.digests); period++ {
		tail := l.digests[len(l.digests)-period*l.rounds:]
		repeats := true
		for i := period; i < len(tail) && repeats; i++ {
			repeats = tail[i] == tail[i-period]
		}
		if repeats {
			return period, true
		}
	}
	return 0, false
}
