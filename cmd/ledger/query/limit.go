package query

import "github.com/settlement-ledger/ledger/cmd/ledger/fault"

// CheckLimit returns a usage error for a --limit below 0.
func CheckLimit(limit int) error {
	if limit < 0 {
		return fault.Usage("--limit: %d is below zero", limit)
	}
	return nil
}
