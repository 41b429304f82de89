package events

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sync"
)

// Knows reports whether this program knows a kind of event, in some version.
func Knows(kind string) bool {
	_, ok := kinds[kind]
	return ok
}

// Kinds returns the kinds of events that this program knows, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// KindsSum returns a sum over the kinds of events that this program knows, each
// with its latest version. What one program computed from a log, passing over
// kinds that it did not know, another may believe only if their sums are equal.
var KindsSum = sync.OnceValue(func() uint32 {
	sum := uint32(0)
	for _, kind := range Kinds() {
		sum = crc32.Update(sum, kindsTable, fmt.Appendf(nil, "%s %d\n", kind, kinds[kind].version))
	}
	return sum
})

var kindsTable = crc32.MakeTable(crc32.Castagnoli)
