package query

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
)

// LastN returns the last limit elements of the slice all, or the whole slice if limit is
// 0. A limit below 0 is a usage error of the flag --limit. The result shares the array
// of the argument.
func LastN[T any](all []T, limit int) ([]T, error) {
	if limit < 0 {
		return nil, fault.Usage("--limit: %d is below zero", limit)
	}
	if limit == 0 {
		return all, nil
	}
	return all[max(0, len(all)-limit):], nil
}
