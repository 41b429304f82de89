package runner

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// The longest round of calls that is looked for, and how often it must come.
const (
	maxPeriod     = 4
	DefaultRounds = 3
)

// loop returns the round of calls that ends with the last of calls and came
// rounds times in a row, the shortest there is, and whether there is one. A
// round is of four calls at most; calls are the same if tool and canonical
// input are.
func loop(calls []domain.Call, rounds int) (period int, ok bool) {
	keys := make([]string, 0, maxPeriod*rounds)
	for _, c := range calls[max(0, len(calls)-maxPeriod*rounds):] {
		keys = append(keys, loopKey(c))
	}
	for period := 1; period <= maxPeriod && period*rounds <= len(keys); period++ {
		tail := keys[len(keys)-period*rounds:]
		if slices.Equal(tail[period:], tail[:len(tail)-period]) {
			return period, true
		}
	}
	return 0, false
}

func loopKey(c domain.Call) string {
	input := c.Input
	if canonical, err := domain.Canonical(c.Input); err == nil {
		input = canonical
	}
	return c.Name + "\x00" + string(input)
}

// looping returns the calls among waiting that come round again, with what is
// to be recorded of each.
func looping(s *conversation.State, waiting []asked, rounds int) map[callKey]events.LoopDetected {
	found := map[callKey]events.LoopDetected{}
	var calls []domain.Call
	for _, m := range s.Messages {
		if m.Reply == nil {
			continue
		}
		for _, c := range m.Reply.Calls {
			calls = append(calls, c.Call)
			isWaiting := slices.ContainsFunc(waiting, func(a asked) bool { return a.message == m.ID && a.ID == c.ID })
			if period, ok := loop(calls, rounds); ok && isWaiting {
				found[callKey{m.ID, c.ID}] = events.LoopDetected{Message: m.ID, Call: c.ID, Tool: c.Name, Period: period, Rounds: rounds}
			}
		}
	}
	return found
}
