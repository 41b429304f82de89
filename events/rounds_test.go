package events

import "os"

// Rounds returns how many rounds a test with random input makes: long where
// LEDGER_TEST_LONG is set, and otherwise short.
func Rounds(short, long int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return long
	}
	return short
}
