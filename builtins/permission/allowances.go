package permission

import (
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

// Allowances keep, for each call, the rules that allowed what it asked for.
// An allow by rule has no event of its own; the runner records these rules with
// the end of the call. The zero Allowances is empty and ready for use. It is
// safe for concurrent use.
type Allowances struct {
	mu struct {
		sync.Mutex
		rules map[domain.Invocation][]domain.Rule // of calls that have not ended
	}
}

// Of returns the rules that allowed what a call asked for, each once, in the
// order in which they did.
func (as *Allowances) Of(inv domain.Invocation) []domain.Rule {
	as.mu.Lock()
	defer as.mu.Unlock()
	return slices.Clone(as.mu.rules[keyOf(inv)])
}

// Forget drops the rules of a call.
func (as *Allowances) Forget(inv domain.Invocation) {
	as.mu.Lock()
	defer as.mu.Unlock()
	delete(as.mu.rules, keyOf(inv))
}

// add keeps rules for a call. Nil Allowances keep nothing.
func (as *Allowances) add(inv domain.Invocation, rules []domain.Rule) {
	if as == nil {
		return
	}
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.mu.rules == nil {
		as.mu.rules = map[domain.Invocation][]domain.Rule{}
	}
	kept := as.mu.rules[keyOf(inv)]
	for _, rule := range rules {
		if !slices.Contains(kept, rule) {
			kept = append(kept, rule)
		}
	}
	as.mu.rules[keyOf(inv)] = kept
}

// keyOf returns what identifies a call.
func keyOf(inv domain.Invocation) domain.Invocation {
	return domain.Invocation{Session: inv.Session, Message: inv.Message, Call: inv.Call}
}
