package events

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sync"
)

// Knows reports whether this program knows a kind of event in any version.
func Knows(kind string) bool {
	_, ok := kinds[kind]
	return ok
}

// Kinds returns the kinds of events that this program knows, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// KindsSum returns a checksum of the known kinds and their latest versions. A
// reader that skips unknown kinds stores it with its checkpoint: another
// program may reuse the checkpoint only if its own sum is equal.
var KindsSum = sync.OnceValue(func() uint32 {
	sum := uint32(0)
	for _, kind := range Kinds() {
		sum = crc32.Update(sum, kindsTable, fmt.Appendf(nil, "%s %d\n", kind, kinds[kind].version))
	}
	return sum
})

// kindsTable is the polynomial of KindsSum.
var kindsTable = crc32.MakeTable(crc32.Castagnoli)
