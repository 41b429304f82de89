package publish_test

import (
	"context"
	"fmt"
	"iter"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// A database is a store with positions as EventStoreDB has them: with gaps, and with
// two different parts. It maps the positions of the store beneath by skewed, and back
// by straight.
type database struct{ events.Store }

// skewed returns the position of a database for a position of the store beneath.
func skewed(p events.Position) events.Position {
	n, _ := p.Parts()
	if n == 0 {
		return p
	}
	return events.NewPosition(100*n+7, 100*n)
}

// straight is the inverse of skewed.
func straight(p events.Position) events.Position {
	_, prepare := p.Parts()
	return events.NewPosition(prepare/100, prepare/100)
}

// skew maps the positions of entries.
func (d database) skew(entries iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range entries {
			e.Position = skewed(e.Position)
			if !yield(e, err) {
				return
			}
		}
	}
}

func (d database) Read(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return d.skew(d.Store.Read(ctx, s, after))
}

func (d database) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return d.skew(d.Store.ReadAll(ctx, straight(after)))
}

func (d database) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	all := slices.Clone(options)
	for i := range all {
		if told := all[i].CaughtUp; told != nil {
			all[i].CaughtUp = func(p events.Position) { told(skewed(p)) }
		}
	}
	return d.skew(d.Store.Follow(ctx, straight(after), all...))
}

// connected returns a client of a server that serves store with EventStoreDB's
// protocol.
func connected(t testing.TB, store events.Store) *eventstoredb.Store {
	t.Helper()
	server, err := server.New(store, server.Config{Anonymous: auth.Ledger})
	if err != nil {
		t.Fatal(err)
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(at) })
	t.Cleanup(func() { server.Close(); serving.Wait() })
	client, err := eventstoredb.Open(t.Context(), "esdb://"+at.Addr().String()+"?tls=false", eventstoredb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A consumer over a database saves both parts of its position, and the next run
// continues after it, by CatchUp and by Follow.
func TestAConsumerOverADatabaseKeepsBothPartsOfItsPosition(t *testing.T) {
	t.Parallel()
	entries := entriesOf(t, 9)
	beneath := eventstest.NewSlice()
	add := func(some []events.Entry) {
		t.Helper()
		for _, e := range some {
			if err := beneath.Append(t.Context(), e.Stream, e.Revision-1, e.Record); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(entries[:4])
	store, kept, locks := connected(t, database{beneath}), &memory{}, claims(t, "test")
	relay := func() *publish.Relay { return publish.NewRelay(store, kept, locks, time.Now) }
	to := &sink{}
	catchUp(t, relay(), job(t, "a"), to)
	c := consumer(t, relay(), "a")
	if commit, prepare := c.Position.Parts(); commit != 407 || prepare != 400 {
		t.Errorf("kept at commit %d, prepare %d, want 407 and 400", commit, prepare)
	}
	add(entries[4:7])
	if lag, err := relay().Lag(t.Context(), c); err != nil || lag.Records != 3 {
		t.Errorf("Lag = %+v, %v, want 3 records", lag, err)
	}
	catchUp(t, relay(), job(t, "a"), to)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay().Follow(ctx, job(t, "a"), to) }()
	add(entries[7:])
	await(t, func() bool { return len(to.got()) >= 9 })
	cancel()
	<-done
	var got []string
	for _, m := range to.got() {
		got = append(got, m.Metadata.Get(publish.KeyRevision)+" "+m.Metadata.Get(publish.KeyPosition))
	}
	var want []string
	for n := range 9 {
		want = append(want, fmt.Sprintf("%d %s", n+1, events.NewPosition(uint64(100*n+107), uint64(100*n+100))))
	}
	if !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
	from, err := publish.ParseStart(events.NewPosition(807, 800).String())
	if err != nil {
		t.Fatal(err)
	}
	late := &sink{}
	catchUp(t, relay(), job(t, "late", func(j *publish.Job) { j.Start = from }), late)
	if got := late.positions(); !slices.Equal(got, []string{events.NewPosition(907, 900).String()}) {
		t.Errorf("from 807/800: published %v, want the last record", got)
	}
	now := &sink{}
	catchUp(t, relay(), job(t, "now", func(j *publish.Job) { j.Start = publish.Now() }), now)
	if c := consumer(t, relay(), "now"); len(now.got()) != 0 || c.Position != events.NewPosition(907, 900) {
		t.Errorf("from now: at %s with %d published, want the end", c.Position, len(now.got()))
	}
}

// Consumers of an empty log begin before its first record, wherever they start.
func TestAnEmptyLogIsFollowedFromItsBeginning(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	d, to := l.relay(), &sink{}
	for name, start := range map[string]publish.Start{"a": {}, "b": publish.Now()} {
		catchUp(t, d, job(t, name, func(j *publish.Job) { j.Start = start }), to)
		if lag, err := d.Lag(t.Context(), consumer(t, d, name)); err != nil || lag.Records != 0 || len(to.got()) != 0 {
			t.Errorf("%s: Lag = %+v, %v with %d published, want nothing", name, lag, err, len(to.got()))
		}
	}
	l.fill(1, 1)
	catchUp(t, d, job(t, "b", func(j *publish.Job) { j.Start = publish.Now() }), to)
	if got := to.positions(); !slices.Equal(got, []string{"1"}) {
		t.Errorf("published %v, want [1]", got)
	}
}
