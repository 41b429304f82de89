package publish_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// entriesOf returns n records of one stream, for another store.
func entriesOf(t *testing.T, n int) []events.Entry {
	t.Helper()
	l := newLog(t)
	l.fill(1, n)
	return l.entries()
}

// sliceOf returns a store over a slice, which has no goroutines. It is created in the
// bubble of synctest in which it is followed, so that time passes while a goroutine
// waits for it.
func sliceOf(t *testing.T, entries []events.Entry) *eventstest.Slice {
	t.Helper()
	store := eventstest.NewSlice()
	for _, e := range entries {
		if err := store.Append(t.Context(), e.Stream, e.Revision-1, e.Record); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// A target that is unavailable for an hour is retried with exponential backoff up to
// MaxBackoff, and every record arrives.
func TestAnUnavailableTargetIsRetried(t *testing.T) {
	t.Parallel()
	entries := entriesOf(t, 3)
	synctest.Test(t, func(t *testing.T) {
		store := sliceOf(t, entries)
		begun := time.Now()
		to := &sink{refuse: func(*message.Message) error {
			if time.Since(begun) < time.Hour {
				return fmt.Errorf("gone: %w", publish.ErrUnavailable)
			}
			return nil
		}}
		var waits []time.Duration
		d := publish.NewRelay(store, &memory{}, claims(t, "test"), time.Now)
		j := job(t, "a", func(j *publish.Job) {
			j.Policy = publish.Policy{Tries: 1}
			j.Failed = func(f publish.FailedAttempt) { waits = append(waits, f.Wait) }
		})
		if err := d.CatchUp(t.Context(), j, to); err != nil {
			t.Fatal(err)
		}
		doubled := []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000}
		if len(waits) < 80 {
			t.Errorf("%d waits in an hour, want one in 45 s or more", len(waits))
		}
		for i, want := range doubled {
			if want *= time.Millisecond; waits[i] < want/2 || waits[i] > want+want/2 {
				t.Errorf("wait %d is %v, want %v with up to half of it added or left out", i, waits[i], want)
			}
		}
		c := consumer(t, d, "a")
		if len(to.got()) != 3 || len(c.DeadLetters) != 0 {
			t.Errorf("%d records arrived and %d were set aside, want 3 and none", len(to.got()), len(c.DeadLetters))
		}
		if c.LastError == nil || c.LastError.Text != "gone: target is not available" {
			t.Errorf("trouble = %+v, want that it was gone", c.LastError)
		}
	})
}

// The backoff has a random part: ten relays do not all wait equally long.
func TestBackoffHasJitter(t *testing.T) {
	t.Parallel()
	entries := entriesOf(t, 1)
	waits := map[time.Duration]bool{}
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			store := sliceOf(t, entries)
			begun, tries := time.Now(), 0
			to := &sink{refuse: func(*message.Message) error {
				if tries++; tries == 1 {
					return publish.ErrUnavailable
				}
				return nil
			}}
			if err := publish.NewRelay(store, &memory{}, claims(t, "test"), time.Now).CatchUp(t.Context(), job(t, "a", func(*publish.Job) {}), to); err != nil {
				t.Fatal(err)
			}
			waits[time.Since(begun)] = true
		})
	}
	if len(waits) < 2 {
		t.Errorf("it waited %v ten times, want different waits", waits)
	}
}

// A run ends with its context while it waits for the next attempt.
func TestARunEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	entries := entriesOf(t, 1)
	synctest.Test(t, func(t *testing.T) {
		store := sliceOf(t, entries)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		to := &sink{refuse: func(*message.Message) error { return publish.ErrUnavailable }}
		j := job(t, "a", func(j *publish.Job) { j.Policy = publish.Policy{MinBackoff: time.Hour, MaxBackoff: time.Hour} })
		err := publish.NewRelay(store, &memory{}, claims(t, "test"), time.Now).Follow(ctx, j, to)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("Follow = %v after %v, want its deadline after a minute", err, time.Since(begun))
		}
	})
}

// The saved consumer is at most SaveInterval behind a run that continues.
func TestTheCheckpointIsSavedInTime(t *testing.T) {
	t.Parallel()
	entries := entriesOf(t, 5)
	synctest.Test(t, func(t *testing.T) {
		store := sliceOf(t, entries)
		kept := &memory{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		j := job(t, "a", func(j *publish.Job) { j.Policy = publish.Policy{} })
		go func() { done <- publish.NewRelay(store, kept, claims(t, "test"), time.Now).Follow(ctx, j, &sink{}) }()
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if c := consumer(t, publish.NewRelay(store, kept, claims(t, "test"), time.Now), "a"); c.Position.String() != "5" || c.Published != 5 {
			t.Errorf("kept after a second: position %s, %d published, want 5, 5", c.Position, c.Published)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow = %v, want that it was canceled", err)
		}
	})
}

// Of several jobs of FollowAll, one whose target opens late and one that ends with an
// error do not affect the others. onError receives the final error of the second, and
// the errors of the first at doubling numbers of attempts.
func TestAFailedJobDoesNotBlockTheOthers(t *testing.T) {
	t.Parallel()
	entries := entriesOf(t, 12)
	synctest.Test(t, func(t *testing.T) {
		store := sliceOf(t, entries)
		sinks := map[string]*sink{"good": {}, "late": {}, "broken": {refuse: func(*message.Message) error { return publish.ErrUnacceptable }}}
		begun := time.Now()
		open := func(_ context.Context, o publish.JobConfig, _ events.Position) (publish.Target, error) {
			if o.Name == "late" && time.Since(begun) < time.Minute {
				return nil, publish.ErrUnavailable
			}
			return sinks[o.Name], nil
		}
		var orders []publish.JobConfig
		for _, name := range []string{"good", "broken", "late"} {
			orders = append(orders, publish.JobConfig{Job: job(t, name, func(j *publish.Job) { j.Policy = publish.Policy{} }), To: "sink:"})
		}
		var mu sync.Mutex
		told, times := map[string]error{}, map[string]int{}
		d := publish.NewRelay(store, &memory{}, claims(t, "test"), time.Now)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		err := d.FollowAll(ctx, orders, open, func(name string, err error, retryIn time.Duration) {
			if retried := retryIn > 0; retried != (name == "late") {
				t.Errorf("%s: %v, retried in %s; want that only the late job is retried", name, err, retryIn)
			}
			mu.Lock()
			defer mu.Unlock()
			told[name] = err
			times[name]++
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("FollowAll = %v, want its deadline", err)
		}
		if len(sinks["good"].got()) != 12 || len(sinks["late"].got()) != 12 {
			t.Errorf("published %d and %d records, want 12 and 12", len(sinks["good"].got()), len(sinks["late"].got()))
		}
		if !errors.Is(told["broken"], publish.ErrTooManyDeadLetters) || !errors.Is(told["late"], publish.ErrUnavailable) || told["good"] != nil {
			t.Errorf("told %v", told)
		}
		if times["broken"] != 1 || times["late"] < 3 || times["late"] > 4 {
			t.Errorf("told %v times, want the late one each time that its wait has doubled", times)
		}
		all, err := d.Consumers(t.Context())
		if err != nil || len(all) != 3 || all[0].Name != "broken" || all[0].LastError == nil || !strings.Contains(all[0].LastError.Text, "too many dead letters") || len(all[0].DeadLetters) != 10 {
			t.Errorf("Consumers = %+v, %v, want broken with 10 set aside first, and why it ended", all, err)
		}
	})
}
