package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// BenchmarkNewStream looks up a new stream among 100,000 others, whose index entries
// are in a dozen overlapping tables and in the levels below. It looks it up with an
// iterator, as the committer does, and with a Get of the first entry, each with and
// without bloom filters.
func BenchmarkNewStream(b *testing.B) {
	name := func(rng *rand.Rand) events.Stream {
		return events.Stream(fmt.Sprintf("session-%016x", rng.Uint64()))
	}
	for _, filtered := range []bool{false, true} {
		storage := vfs.NewMem()
		o := &pebble.Options{FS: storage, FormatMajorVersion: pebblefiles.FormatVersion, Logger: quietLogger(storage), DisableAutomaticCompactions: true, MemTableSize: 16 << 20}
		for i := range o.Levels {
			o.Levels[i].BlockSize = 32 << 10
			if filtered {
				o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
			}
		}
		db, err := pebble.Open("db", o)
		must(b, err)
		rng := rand.New(rand.NewPCG(1, 1))
		for flush := range 24 {
			for range 100_000 / 24 {
				must(b, db.Set(layout.IndexKey(name(rng), 1), binary.BigEndian.AppendUint64(nil, 1), pebble.NoSync))
			}
			must(b, db.Flush())
			if flush == 11 {
				must(b, db.Compact(b.Context(), []byte{0}, []byte{0xff}, false))
			}
		}
		if !filtered {
			b.Run("iterator", func(b *testing.B) {
				for b.Loop() {
					stream := name(rng)
					it, err := db.NewIter(&pebble.IterOptions{LowerBound: layout.IndexKey(stream, 0), UpperBound: layout.IndexEnd(stream)})
					must(b, err)
					if it.Last() {
						b.Fatal("a new stream exists")
					}
					must(b, it.Close())
				}
			})
		}
		b.Run(fmt.Sprintf("get,filtered=%t", filtered), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := db.Get(layout.IndexKey(name(rng), 1)); !errors.Is(err, pebble.ErrNotFound) {
					b.Fatal("a new stream exists")
				}
			}
		})
		must(b, db.Close())
	}
}
