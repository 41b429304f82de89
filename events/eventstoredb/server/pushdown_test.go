package server_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// A subscriber receives the same messages whether the store or the server
// applies its filter. The test serves one store twice, with and without the
// store's filter, and compares subscriptions with random filters.
func TestStoreAndServerFiltersSendTheSame(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.Context(), "ledger", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	c := connect(t, serve(t, store, everything))
	plain := connect(t, serve(t, struct{ events.Store }{store}, everything))
	filters := []esdb.SubscriptionFilter{
		{Type: esdb.StreamFilterType, Prefixes: []string{"a-1", "c"}},
		{Type: esdb.StreamFilterType, Regex: `^(?:a|b)(?:-|$)`},
		{Type: esdb.StreamFilterType, Regex: `^[^$]`},
		{Type: esdb.StreamFilterType, Regex: `1$`},
		{Type: esdb.EventFilterType, Regex: `^(?:Rare|Never)$`},
		{Type: esdb.EventFilterType, Regex: `^R`},
		{Type: esdb.EventFilterType, Prefixes: []string{"R", "L"}},
	}
	for round := range rounds(4, 12) {
		scatter(t, c, random)
		type pair struct {
			options   esdb.SubscribeToAllOptions
			got, want *esdb.Subscription
		}
		var subs []pair
		for _, f := range filters {
			o := esdb.SubscribeToAllOptions{From: esdb.Start{}, Filter: &f, MaxSearchWindow: 1 + random.IntN(9), CheckpointInterval: 1 + random.IntN(3)}
			if head, _ := store.Head().Parts(); round%2 > 0 {
				at := random.Uint64N(head) + 1
				o.From = esdb.Position{Commit: at, Prepare: at}
			}
			got, err := c.SubscribeToAll(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			want, err := plain.SubscribeToAll(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			subs = append(subs, pair{o, got, want})
		}
		compare := func(when, last string) {
			for _, s := range subs {
				if diff := cmp.Diff(until(t, s.got, last), until(t, s.want, last)); diff != "" {
					t.Fatalf("seed %d, %s, %+v of %+v: got − want +\n%s", seed, when, s.options, *s.options.Filter, diff)
				}
			}
		}
		compare("what there was", "|")
		scatter(t, c, random)
		mustAppend(t, c, fmt.Sprintf("a-1-%d1", round), esdb.NoStream{}, proposed("Rare", "")) // which all admit
		compare("what came then", fmt.Sprintf("a-1-%d1/0", round))
		for _, s := range subs {
			_, _ = s.got.Close(), s.want.Close()
		}
	}
}

// scatter appends to random streams, of which the filters match few.
func scatter(t *testing.T, c *esdb.Client, random *rand.Rand) {
	t.Helper()
	for range 20 {
		kind := "Common"
		if random.IntN(8) == 0 {
			kind = "Rare"
		}
		stream := fmt.Sprintf("%s-%d", []string{"a", "b", "c", "d", "d", "d"}[random.IntN(6)], random.IntN(3))
		mustAppend(t, c, stream, esdb.Any{}, many(kind, 1+random.IntN(4))...)
	}
}

// until returns the messages of a subscription up to a given one.
func until(t *testing.T, sub *esdb.Subscription, last string) (all []string) {
	t.Helper()
	for len(all) == 0 || all[len(all)-1] != last {
		all = append(all, messages(t, sub, 1)...)
	}
	return all
}
