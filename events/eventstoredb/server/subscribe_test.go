package server_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
)

// messages formats the next n messages of a subscription: stream and revision,
// @ and position for a checkpoint, | for CaughtUp.
func messages(t *testing.T, sub *esdb.Subscription, n int) (all []string) {
	t.Helper()
	for range n {
		e := sub.Recv()
		switch {
		case e.EventAppeared != nil:
			all = append(all, fmt.Sprintf("%s/%d", e.EventAppeared.Event.StreamID, e.EventAppeared.Event.EventNumber))
		case e.CheckPointReached != nil:
			all = append(all, fmt.Sprintf("@%d", e.CheckPointReached.Commit))
		case e.CaughtUp != nil:
			all = append(all, "|")
		default:
			t.Fatalf("after %v the subscription was dropped: %+v", all, e.SubscriptionDropped)
		}
	}
	return all
}

func wantReceived(t *testing.T, sub *esdb.Subscription, err error, want ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(messages(t, sub, len(want)), want); diff != "" {
		t.Errorf("told: got − want +\n%s", diff)
	}
}

// A subscriber receives each event after its start point once, in order.
func TestSubscriberReceivesEachLaterEventOnce(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	mustAppend(t, c, "a-1", esdb.NoStream{}, many("A", 2)...)
	mustAppend(t, c, "b-1", esdb.NoStream{}, many("A", 1)...)
	start, err := c.SubscribeToAll(t.Context(), esdb.SubscribeToAllOptions{From: esdb.Start{}})
	wantReceived(t, start, err, "a-1/0", "a-1/1", "b-1/0", "|")
	behind, err := c.SubscribeToAll(t.Context(), esdb.SubscribeToAllOptions{From: esdb.Position{Commit: 2, Prepare: 2}})
	wantReceived(t, behind, err, "b-1/0", "|")
	end, err := c.SubscribeToAll(t.Context(), esdb.SubscribeToAllOptions{From: esdb.End{}})
	wantReceived(t, end, err, "|")
	stream, err := c.SubscribeToStream(t.Context(), "a-1", esdb.SubscribeToStreamOptions{From: esdb.Revision(0)})
	wantReceived(t, stream, err, "a-1/1", "|")
	last, err := c.SubscribeToStream(t.Context(), "a-1", esdb.SubscribeToStreamOptions{From: esdb.End{}})
	wantReceived(t, last, err, "|")
	none, err := c.SubscribeToStream(t.Context(), "a-1x", esdb.SubscribeToStreamOptions{From: esdb.Start{}})
	wantReceived(t, none, err, "|")

	mustAppend(t, c, "a-1x", esdb.NoStream{}, many("A", 4)...)
	mustAppend(t, c, "a-1", esdb.Any{}, many("A", 1)...)
	for _, sub := range []*esdb.Subscription{start, behind, end} {
		wantReceived(t, sub, nil, "a-1x/0", "a-1x/1", "a-1x/2", "a-1x/3", "a-1/2")
	}
	wantReceived(t, stream, nil, "a-1/2")
	wantReceived(t, last, nil, "a-1/2")
	wantReceived(t, none, nil, "a-1x/0", "a-1x/1", "a-1x/2", "a-1x/3")
}

// A filtered subscription sends a checkpoint after each interval of examined
// events.
func TestFilteredSubscriptionSendsCheckpoints(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	for i := range 3 {
		mustAppend(t, c, fmt.Sprintf("a-%d", i), esdb.NoStream{}, many("Apple", 2)...)
		mustAppend(t, c, fmt.Sprintf("b-%d", i), esdb.NoStream{}, many("Berry", 2)...)
	}
	for name, test := range map[string]struct {
		filter esdb.SubscriptionFilter
		want   []string
	}{
		"stream prefix": {esdb.SubscriptionFilter{Type: esdb.StreamFilterType, Prefixes: []string{"a-1", "b-2"}}, []string{"@4", "a-1/0", "a-1/1", "@8", "b-2/0", "b-2/1", "@12", "@12", "|"}},
		"stream regex":  {esdb.SubscriptionFilter{Type: esdb.StreamFilterType, Regex: "0$"}, []string{"a-0/0", "a-0/1", "b-0/0", "b-0/1", "@4", "@8", "@12", "@12", "|"}},
		"type prefix":   {esdb.SubscriptionFilter{Type: esdb.EventFilterType, Prefixes: []string{"B"}}, []string{"b-0/0", "b-0/1", "@4", "b-1/0", "b-1/1", "@8", "b-2/0", "b-2/1", "@12", "@12", "|"}},
		"type regex":    {esdb.SubscriptionFilter{Type: esdb.EventFilterType, Regex: "^C"}, []string{"@4", "@8", "@12", "@12", "|"}},
	} {
		t.Run(name, func(t *testing.T) {
			sub, err := c.SubscribeToAll(t.Context(), esdb.SubscribeToAllOptions{From: esdb.Start{}, Filter: &test.filter, MaxSearchWindow: 2, CheckpointInterval: 2})
			wantReceived(t, sub, err, test.want...)
		})
	}
}

// A subscription with the header CaughtUpEachTime receives CaughtUp each time
// that it has caught up.
func TestCaughtUpIsSentEachTimeOnRequest(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), server.CaughtUpEachTime, "1")
	sub, err := c.SubscribeToAll(ctx, esdb.SubscribeToAllOptions{From: esdb.Start{}})
	wantReceived(t, sub, err, "|")
	for i := range 3 {
		mustAppend(t, c, "a-1", esdb.Any{}, many("A", 1)...)
		wantReceived(t, sub, nil, fmt.Sprintf("a-1/%d", i), "|")
	}
}

// A subscriber that receives no message until more was written than flow control
// allows does not delay another subscriber, and then receives every event.
func TestSlowSubscriberLosesNothingAndDelaysNoOther(t *testing.T) {
	t.Parallel()
	kept, err := embedded.Open(t.Context(), "ledger", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	for name, store := range map[string]events.Store{"a slice": eventstest.NewSlice(), "embedded": kept} {
		t.Run(name, func(t *testing.T) { testSlowSubscriber(t, store) })
	}
}

func testSlowSubscriber(t *testing.T, store events.Store) {
	c := connect(t, serve(t, store, everything))
	slow, err := c.SubscribeToAll(t.Context(), esdb.SubscribeToAllOptions{From: esdb.Start{}})
	if err != nil {
		t.Fatal(err)
	}
	fast, err := c.SubscribeToAll(t.Context(), esdb.SubscribeToAllOptions{From: esdb.Start{}})
	wantReceived(t, fast, err, "|")
	const size, batch = 6 << 10, 20 // messages that subscribers share
	n := rounds(600, 1200)          // 3.5 or 7 MiB: more than flow control lets pass
	for first := 0; first < n; first += batch {
		var sent []esdb.EventData
		var want []string
		for i := range batch {
			sent = append(sent, esdb.EventData{EventType: "A", Data: make([]byte, size)})
			want = append(want, fmt.Sprintf("a-1/%d", first+i))
		}
		mustAppend(t, c, "a-1", esdb.Any{}, sent...)
		wantReceived(t, fast, nil, want...)
	}
	next := uint64(0)
	for next < uint64(n) {
		e := slow.Recv()
		if e.SubscriptionDropped != nil {
			t.Fatal(e.SubscriptionDropped.Error)
		}
		if e.EventAppeared == nil {
			continue
		}
		if got := e.EventAppeared.Event.EventNumber; got != next {
			t.Fatalf("received revision %d, want %d", got, next)
		}
		next++
	}
}

// Shutdown ends subscriptions with UNAVAILABLE and waits for running calls.
func TestShutdownEndsSubscriptionsAndWaitsForCalls(t *testing.T) {
	t.Parallel()
	stall := &stalled{Slice: eventstest.NewSlice(), began: make(chan struct{}), goOn: make(chan struct{})}
	server, address, done := start(t, stall)
	c := connect(t, address)
	sub, err := c.SubscribeToAll(t.Context(), esdb.SubscribeToAllOptions{From: esdb.Start{}})
	wantReceived(t, sub, err, "|")
	appended := make(chan error, 1)
	go func() {
		_, err := c.AppendToStream(context.Background(), "a-1", esdb.AppendToStreamOptions{ExpectedRevision: esdb.NoStream{}}, proposed("A", ""))
		appended <- err
	}()
	<-stall.began
	ended := make(chan error, 1)
	go func() { ended <- server.Shutdown(context.Background()) }()
	for {
		if e := sub.Recv(); e.SubscriptionDropped != nil {
			if got := status.Code(e.SubscriptionDropped.Error); got != codes.Unavailable {
				t.Errorf("the subscription ended with %v, want UNAVAILABLE", e.SubscriptionDropped.Error)
			}
			break
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("Shutdown() = %v while an append runs", err)
	default:
	}
	close(stall.goOn)
	for name, c := range map[string]chan error{"append": appended, "Shutdown": ended, "Serve": done} {
		if err := <-c; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Shutdown ends the remaining calls when its context ends, and returns the cause.
func TestShutdownEndsCallsWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	stall := &stalled{Slice: eventstest.NewSlice(), began: make(chan struct{}), goOn: make(chan struct{})}
	server, address, done := start(t, stall)
	c := connect(t, address)
	answered := make(chan struct{}) // before the client is closed, as it panics otherwise
	go func() {
		defer close(answered)
		_, _ = c.AppendToStream(context.Background(), "a-1", esdb.AppendToStreamOptions{ExpectedRevision: esdb.NoStream{}}, proposed("A", ""))
	}()
	<-stall.began
	ctx, cancel := context.WithCancelCause(t.Context())
	up := errors.New("time is up")
	cancel(up)
	if err := server.Shutdown(ctx); !errors.Is(err, up) {
		t.Errorf("Shutdown() = %v, want %v", err, up)
	}
	if err := <-done; err != nil {
		t.Errorf("Serve() = %v, want nil", err)
	}
	<-answered
}

// A stalled store blocks appends until goOn is closed or the context ends.
type stalled struct {
	*eventstest.Slice
	began, goOn chan struct{}
}

func (s *stalled) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	close(s.began)
	select {
	case <-s.goOn:
		return s.Slice.Append(ctx, stream, after, records...)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
