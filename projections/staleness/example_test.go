package staleness_test

import (
	"fmt"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/staleness"
)

// A tool that is registered again is stale to earlier turns, even with the same
// definition.
func ExampleCompare() {
	b := newBench()
	b.register(b.app, "reads a file", "read")
	offered, _ := b.catalog().Effective(b.layers(), "read")
	again := b.register(b.app, "reads a file", "read")
	v := staleness.Compare(b.catalog(), b.layers(), offered.Offered)
	fmt.Println("stale:", v.Stale)
	fmt.Println("definitions agree:", v.Agrees)
	fmt.Println("in effect is what came later:", v.Effective.Registration == domain.RegistrationOf(again.ID))
	fmt.Println("which made the difference:", v.ChangedBy == again.ID)
	// Output:
	// stale: true
	// definitions agree: true
	// in effect is what came later: true
	// which made the difference: true
}
