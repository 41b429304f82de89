package runner

import (
	"crypto/sha256"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
)

// The longest cycle of calls that is detected, and how often it must repeat.
const (
	maxPeriod     = 4
	DefaultRounds = 3
)

// A callDigest identifies a tool with its canonical input.
type callDigest [sha256.Size]byte

// digest returns the digest of a call. An input without a canonical form is
// taken as it is.
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

// A loopDetector finds calls that repeat in a session. It reads each message of
// the session once: the cost of a step is that of its new calls. It belongs to
// one goroutine.
type loopDetector struct {
	rounds  int
	read    int                                 // messages of the session that it has read
	digests []callDigest                        // the last maxPeriod*rounds calls since the last prompt
	found   map[messageCall]events.LoopDetected // calls that end a loop
}

func newLoopDetector(rounds int) *loopDetector {
	return &loopDetector{rounds: rounds, found: map[messageCall]events.LoopDetected{}}
}

// advance reads the messages that the session has gained. A prompt ends the
// count: what a person asks for again is no loop. The prompts of a session with
// a parent come from the agent that began it, and end no count.
func (l *loopDetector) advance(s *conversation.State) {
	for ; l.read < len(s.Messages); l.read++ {
		m := s.Messages[l.read]
		if m.Prompt != nil && s.Parent.IsZero() {
			l.digests = l.digests[:0]
		}
		if m.Reply == nil {
			continue
		}
		for _, c := range m.Reply.Calls {
			l.add(m.ID, c.Call)
		}
	}
}

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

// period returns the length of the shortest cycle of at most maxPeriod calls
// that the last calls repeat rounds times in a row, and whether there is one.
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
