package registry_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain lowers the number of random histories that each test of package
// rapid makes, unless LEDGER_TEST_LONG is set. The flag -rapid.checks overrides
// it.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", map[bool]string{true: "100", false: "30"}[long()]); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// long reports whether the tests take the time for all their rounds.
func long() bool { return os.Getenv("LEDGER_TEST_LONG") != "" }

// rounds returns the number of rounds of a test: short by default, and all with
// LEDGER_TEST_LONG.
func rounds(short, all int) int {
	if long() {
		return all
	}
	return short
}
