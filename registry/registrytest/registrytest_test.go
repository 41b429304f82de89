package registrytest

import (
	"testing"

	"github.com/settlement-ledger/ledger/domain/lawtest"
)

// The real registry keeps every law, and each law rejects its saboteur.
func TestRegistryKeepsEveryLawAndEachSaboteurIsCaught(t *testing.T) {
	t.Parallel()
	lawtest.TestSuite(t, Laws())
}
