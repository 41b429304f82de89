package projections

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// MergeOffers returns what a turn offers of which two events record parts: the tools
// of one, followed by those of the other that are not among them. It shares no
// memory with either.
func MergeOffers(tools, more []domain.Offered) []domain.Offered {
	all := slices.Clone(tools)
	for _, t := range more {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// OfferKey returns a text that is the same for equal offers alone, so that an
// answer can hold each once, whatever the number of turns that made it.
func OfferKey(tools []domain.Offered) string {
	var key []byte
	for _, t := range tools {
		registration, layer := t.Registration.Bytes(), t.Layer.Bytes()
		key = append(key, registration[:]...)
		key = append(key, layer[:]...)
		key = append(key, t.Fingerprint[:]...)
		key = append(key, t.Name...)
		key = append(key, 0)
	}
	return string(key)
}
