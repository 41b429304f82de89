package registrytest

import (
	"testing"

	"github.com/settlement-ledger/ledger/domain/lawtest"
)

func TestRegistryKeepsEveryLawAndEachSaboteurIsCaught(t *testing.T) {
	t.Parallel()
	lawtest.TestSuite(t, Laws())
}
