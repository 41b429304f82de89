package embedded

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// wordy returns a store with records of about 400 bytes that compress like prose. The
// records are in 64 streams at a time.
func wordy(b *testing.B, count int) *Store {
	s, err := Open(b.Context(), b.TempDir(), Config{})
	must(b, err)
	b.Cleanup(func() { must(b, s.Close()) })
	p, rng := newRecordWriter(1), rand.New(rand.NewPCG(1, 7))
	kinds := []string{"PromptAdmitted", "TurnMaterialized", "ReplyReceived", "CallStarted", "CallSettled"}
	for at := 0; at < count; at += 1000 {
		stream := events.Stream("session-" + p.Event().String()[4:])
		records := p.records(1000, 0)
		for i := range records {
			records[i].Kind = kinds[rng.IntN(len(kinds))]
			records[i].Time = records[i].Time.Add(time.Duration(at+i) * time.Millisecond)
			text := []byte(`{"session":"` + string(stream) + `","text":"`)
			for len(text) < 270 {
				text = fmt.Appendf(text, "%x ", rng.IntN(1<<(4*(1+rng.IntN(5)))))
			}
			records[i].Data = append(text, `"}`...)
			records[i].Metadata = []byte(`{"$correlationId":"` + string(stream) + `"}`)
		}
		must(b, s.Append(b.Context(), stream, 0, records...))
	}
	must(b, s.db.Flush())
	return s
}

// BenchmarkScan reads half a million records with each method of reading, and with a
// bare iterator over the same keys, in each round. Each metric is the speed of a
// method divided by the speed of the bare iterator: the median of the rounds.
func BenchmarkScan(b *testing.B) {
	const count = 500_000
	s := wordy(b, count)
	settled := events.Filter{Kinds: []string{"CallSettled"}}
	late := events.Filter{Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(count * 9 / 10 * time.Millisecond)}
	ways := []struct {
		name string
		read func() int
	}{
		{"bare", func() int { return bare(b, s) }},
		{"headers", func() int { return drainHeaders(b, s, events.Query{}) }},
		{"lend", func() int { return drainLent(b, s, events.Query{}) }},
		{"scan", func() int { return drainEntries(b, s, events.Query{}) }},
		{"back", func() int { return drainLent(b, s, events.Query{Backward: true}) }},
		{"kind", func() int { return drainEntries(b, s, events.Query{Filter: settled}) }},
		{"time", func() int { return drainEntries(b, s, events.Query{Filter: late}) }},
	}
	took := make([][]float64, len(ways))
	for b.Loop() {
		for i, way := range ways {
			start := time.Now()
			if n := way.read(); n == 0 || n > count {
				b.Fatalf("%s yields %d records", way.name, n)
			}
			took[i] = append(took[i], float64(time.Since(start)))
		}
	}
	for i, way := range ways {
		slices.Sort(took[i])
		slices.Sort(took[0])
		b.ReportMetric(took[0][len(took[0])/2]/took[i][len(took[i])/2], "x-"+way.name)
	}
	b.ReportMetric(count/took[0][len(took[0])/2]*1e6, "bare-k/s")
}

// bare iterates with Pebble alone, and reads each key and value.
func bare(b *testing.B, s *Store) (n int) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: layout.EntryKey(0), UpperBound: layout.EntriesEnd()})
	must(b, err)
	sum := byte(0)
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		must(b, err)
		sum += it.Key()[9] + value[0] + value[len(value)-1]
		n++
	}
	must(b, it.Close())
	return n
}

func drainHeaders(b *testing.B, s *Store, q events.Query) (n int) {
	for _, err := range s.Headers(b.Context(), q) {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	return n
}

func drainLent(b *testing.B, s *Store, q events.Query) (n int) {
	for _, err := range s.Lend(b.Context(), q) {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	return n
}

func drainEntries(b *testing.B, s *Store, q events.Query) (n int) {
	for _, err := range s.Scan(b.Context(), q) {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	return n
}
