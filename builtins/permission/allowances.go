package permission

import (
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

// Allowances stores, for each call, the rules that allowed its requests or resources of them.
// The ledger has no event for a request that rules allow; the runner records these rules with the end of the
// call. The zero Allowances is ready for use. It is safe for concurrent use.
type Allowances struct {
	mu struct {
		sync.Mutex
		rules map[domain.Invocation][]domain.Rule // of calls that have not ended
	}
}

// Of returns the rules that allowed the requests of a call, each once, ordered by the
// first request that each rule allowed.
func (as *Allowances) Of(inv domain.Invocation) []domain.Rule {
	as.mu.Lock()
	defer as.mu.Unlock()
	return slices.Clone(as.mu.rules[callOf(inv)])
}

// Forget drops the rules of a call.
func (as *Allowances) Forget(inv domain.Invocation) {
	as.mu.Lock()
	defer as.mu.Unlock()
	delete(as.mu.rules, callOf(inv))
}

// add stores rules for a call. On nil Allowances it does nothing.
func (as *Allowances) add(inv domain.Invocation, rules []domain.Rule) {
	if as == nil {
		return
	}
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.mu.rules == nil {
		as.mu.rules = map[domain.Invocation][]domain.Rule{}
	}
	kept := as.mu.rules[callOf(inv)]
	for _, rule := range rules {
		if !slices.Contains(kept, rule) {
			kept = append(kept, rule)
		}
	}
	as.mu.rules[callOf(inv)] = kept
}

// callOf returns the identity of a call.
func callOf(inv domain.Invocation) domain.Invocation {
	return domain.Invocation{Session: inv.Session, Message: inv.Message, Call: inv.Call}
}
