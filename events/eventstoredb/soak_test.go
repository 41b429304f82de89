package eventstoredb_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
)

// soakVariable sets the duration of TestSoak. A server that restarts every quarter of
// an hour restarts 96 times a day: five minutes contain as many restarts.
const soakVariable = "LEDGER_TEST_SOAK"

// Acknowledged records are stored and delivered once while the server restarts again
// and again, and the store leaks no goroutine or descriptor.
func TestSoak(t *testing.T) {
	length := time.Duration(repeats(1500, 60_000)) * time.Millisecond
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	d := newDatabase(t)
	d.config.RetryTimeout = faultRetryTimeout
	d.stop() // the descriptors of the stopped server do not count
	goroutines, descriptors := runtime.NumGoroutine(), openFiles(t)
	d.start()
	s, err := eventstoredb.Open(t.Context(), d.url(), d.config)
	if err != nil {
		t.Fatal(err)
	}
	soak(t, s, length, max(length/60, 100*time.Millisecond), d.restart)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	d.stop()
	waitForCount(t, "goroutines", goroutines, runtime.NumGoroutine)
	waitForCount(t, "descriptors", descriptors, func() int { return openFiles(t) })
}

// soak runs writers and followers of a store while the server restarts again and
// again, and checks that every acknowledged record is stored and delivered once.
func soak(t *testing.T, s *eventstoredb.Store, length, every time.Duration, restart func()) {
	const writers, followers = 4, 3
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var writing, following, restarting sync.WaitGroup
	lengths := make([]events.Revision, writers)
	for w := range writers {
		writing.Go(func() { lengths[w] = soakWriter(ctx, t, s, w) })
	}
	dying, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	seen := make([]map[events.Stream]events.Revision, followers)
	ended := make(chan struct{}, followers)
	total := make(chan events.Position)
	for f := range followers {
		following.Go(func() {
			seen[f] = soakFollower(dying, t, s, f, total)
			ended <- struct{}{}
		})
	}
	restarts := 0
	restarting.Go(func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				restart()
				restarts++
			case <-ctx.Done():
				return
			}
		}
	})
	writing.Wait()
	restarting.Wait()
	var last events.Position
	for e, err := range events.Scan(t.Context(), s, events.Query{Backward: true}) {
		if last = e.Position; err != nil {
			t.Fatal(err)
		}
		break
	}
	for range followers {
		total <- last
	}
	following.Wait()
	all := events.Revision(0)
	for w := range writers {
		stream := events.Stream(fmt.Sprintf("soak-%d", w))
		all += lengths[w]
		for f := range followers {
			if got := seen[f][stream]; got != lengths[w] {
				t.Errorf("follower %d saw %d entries of %s, want %d", f, got, stream, lengths[w])
			}
		}
		entries, err := collect(s.Read(t.Context(), stream, 0))
		if err != nil || events.Revision(len(entries)) != lengths[w] {
			t.Errorf("%s holds %d entries and %v, want the %d that were acknowledged", stream, len(entries), err, lengths[w])
		}
	}
	t.Logf("%d restarts, %d records of %d writers, each seen once and in order by %d followers", restarts, all, writers, followers)
}

// soakWriter appends until ctx ends, and returns the length of its stream.
func soakWriter(ctx context.Context, t *testing.T, s events.Store, w int) (at events.Revision) {
	stream, mint := events.Stream(fmt.Sprintf("soak-%d", w)), newMint()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return at
		}
		batch := make([]events.Record, 1+n%3)
		for i := range batch {
			batch[i] = record(mint, fmt.Sprintf("Kind%d", w), n)
		}
		if err := s.Append(t.Context(), stream, at, batch...); err != nil {
			t.Errorf("Append(%s, %d) = %v", stream, at, err)
			return at
		}
		at += events.Revision(len(batch))
	}
}

// soakFollower follows to the last position, and returns the number of entries by
// stream.
func soakFollower(ctx context.Context, t *testing.T, s events.Store, f int, total <-chan events.Position) map[events.Stream]events.Revision {
	seen := map[events.Stream]events.Revision{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var at, last events.Position
	var following []events.Following
	switch f {
	case 1:
		following = []events.Following{{CaughtUp: func(p events.Position) {
			if p.Compare(at) < 0 {
				t.Errorf("follower %d: CaughtUp(%s) after an entry at %s", f, p, at)
			}
		}}}
	case 2:
		following = []events.Following{{Filter: events.Filter{Categories: []string{"soak"}}}}
	}
	next := make(chan events.Entry)
	failed := make(chan error, 1)
	go func() {
		defer close(next)
		for e, err := range s.Follow(ctx, events.Position{}, following...) {
			if err != nil {
				failed <- err
				return
			}
			at = e.Position
			select {
			case next <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range next { // until it has ended
		}
	}()
	var before events.Position
	for last.IsZero() || before.Compare(last) < 0 {
		select {
		case e := <-next:
			if e.Revision != seen[e.Stream]+1 || e.Position.Compare(before) <= 0 {
				t.Errorf("follower %d: entry %d of %s at %s follows entry %d and position %s", f, e.Revision, e.Stream, e.Position, seen[e.Stream], before)
			}
			seen[e.Stream], before = e.Revision, e.Position
		case last = <-total:
			total = nil
		case err := <-failed:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("follower %d: %v", f, err)
			}
			return seen
		}
	}
	return seen
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Log("this system does not tell which files are open: they are not counted, and all else is held")
	}
	return len(files)
}

// waitForCount fails t unless a count falls to want within a minute.
func waitForCount(t *testing.T, what string, want int, count func() int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for count() > want {
		if time.Now().After(deadline) {
			t.Fatalf("there are %d %s, and were %d:\n%s", count(), what, want, stacks())
		}
		time.Sleep(pollEvery)
	}
}
