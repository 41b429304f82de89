package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/settlement-ledger/ledger/events"
)

// queued returns an append of a stream that was admitted and put.
func queued(t *testing.T, q *queue, s events.Stream, size int) *appendRequest {
	t.Helper()
	must(t, q.admit(t.Context(), s, size))
	p := &appendRequest{stream: s, size: size, done: make(chan error, 1)}
	must(t, q.put(p))
	return p
}

// One stream puts far more appends than fit a group. Later appends of other streams
// are in the next group.
func TestAFloodOnOneStreamDelaysNoOther(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for range 5 * maxGroupAppends {
		queued(t, q, "flood", 100)
	}
	quiet := []*appendRequest{}
	for i := range 20 {
		quiet = append(quiet, queued(t, q, events.Stream(fmt.Sprint("quiet-", i)), 100))
	}
	group := q.take(nil)
	if len(group) != maxGroupAppends {
		t.Errorf("the group has %d appends, want %d", len(group), maxGroupAppends)
	}
	for _, p := range quiet {
		if !slices.Contains(group, p) {
			t.Errorf("an append of %s stands behind the flood, want it in the next group", p.stream)
		}
	}
}

// One stream waits for admission with many appends. The append of another stream is
// admitted second.
func TestAFloodThatFillsTheQueueDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		full := queued(t, q, "flood", maxQueueBytes)
		var mu sync.Mutex
		var order []events.Stream
		wait := func(s events.Stream) {
			go func() {
				if q.admit(t.Context(), s, maxQueueBytes) == nil {
					mu.Lock()
					order = append(order, s)
					mu.Unlock()
					q.release(maxQueueBytes)
				}
			}()
			synctest.Wait()
		}
		for range 10 {
			wait("flood")
		}
		wait("quiet")
		q.take(nil)
		q.finished(full.size)
		synctest.Wait()
		if at := slices.Index(order, "quiet"); len(order) != 11 || at > 1 {
			t.Errorf("admitted were %v, want quiet the first or second of 11", order)
		}
	})
}

// Appends wait outside of a full queue until its appends are finished. An append that
// is larger than the bound is admitted alone.
func TestQueueBoundsBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		first, second := queued(t, q, "a-1", maxQueueBytes/2), queued(t, q, "a-2", maxQueueBytes/2)
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		large, small, gone := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { large <- q.admit(t.Context(), "b-1", 3*maxQueueBytes) }()
		synctest.Wait()
		go func() { gone <- q.admit(ctx, "b-2", 1) }()
		synctest.Wait()
		go func() { small <- q.admit(t.Context(), "b-3", 1) }()
		synctest.Wait()
		if _, held := q.size(); held != maxQueueBytes || len(large)+len(small)+len(gone) != 0 {
			t.Fatalf("a full queue holds %d bytes and admitted %d more, want %d and none", held, len(large)+len(small)+len(gone), maxQueueBytes)
		}
		cancel(stop)
		if err := <-gone; err != stop {
			t.Errorf("admit in a context that ended = %v, want its cause", err)
		}
		if group := q.take(nil); !slices.Contains(group, first) {
			t.Fatalf("take() = %v", group)
		}
		q.finished(first.size)
		synctest.Wait()
		if len(large)+len(small) != 0 {
			t.Error("one that is larger than the queue, or stands behind it, was admitted beside another")
		}
		q.take(nil)
		q.finished(second.size)
		synctest.Wait()
		if len(large) != 1 || len(small) != 0 {
			t.Fatalf("an empty queue admits %d large and %d small, want the large one alone", len(large), len(small))
		}
		q.release(3 * maxQueueBytes)
		must(t, <-small)
		if _, held := q.size(); held != 1 {
			t.Errorf("the queue holds %d bytes, want 1", held)
		}
	})
}

// A large append that waits for admission is cancelled. A small one behind it, for
// which there is room, is admitted.
func TestACancelledAdmissionDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		must(t, q.admit(t.Context(), "a-1", 1))
		ctx, cancel := context.WithCancel(t.Context())
		small := make(chan error, 1)
		go q.admit(ctx, "b-1", maxQueueBytes)
		synctest.Wait()
		go func() { small <- q.admit(t.Context(), "b-2", 1) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(small) != 1 {
			t.Error("one waits behind one that gave up")
			q.close()
		}
	})
}

// Random operations have the same results on a fairQueue and on simple lists.
func TestFairQueueServesStreamsRoundRobin(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	var r fairQueue[int]
	lines, turns, n := map[events.Stream][]int{}, []events.Stream{}, 0
	leave := func(s events.Stream) {
		if len(lines[s]) == 0 {
			turns = slices.DeleteFunc(turns, func(x events.Stream) bool { return x == s })
		}
	}
	for i := range repeats(20_000, 100_000) {
		s := events.Stream(fmt.Sprint(rng.IntN(6)))
		switch what := rng.IntN(20); {
		case what < 9:
			if r.push(s, i); len(lines[s]) == 0 {
				turns = append(turns, s)
			}
			lines[s] = append(lines[s], i)
			n++
		case what < 18 && n > 0:
			s := turns[0]
			want := lines[s][0]
			lines[s] = lines[s][1:]
			if turns = turns[1:]; len(lines[s]) > 0 {
				turns = append(turns, s)
			}
			n--
			if first := r.first(); first != want {
				t.Fatalf("step %d: first() = %d, want %d", i, first, want)
			}
			if got := r.pop(); got != want {
				t.Fatalf("step %d: pop() = %d, want %d", i, got, want)
			}
		case what >= 18:
			item := -1
			if len(lines[s]) > 0 {
				item = lines[s][rng.IntN(len(lines[s]))]
				lines[s] = slices.DeleteFunc(slices.Clone(lines[s]), func(x int) bool { return x == item })
				n--
				leave(s)
			}
			if got := r.remove(s, item); got != (item >= 0) {
				t.Fatalf("step %d: remove(%s, %d) = %t", i, s, item, got)
			}
		}
		if r.len != n {
			t.Fatalf("step %d: len = %d, want %d", i, r.len, n)
		}
	}
}

// Appends that are withdrawn while the committer gathers a group can leave the group
// empty. The committer continues: every later append is answered.
func TestTheCommitterOutlivesAppendsThatAreWithdrawn(t *testing.T) {
	// On one processor the test runs whenever the committer yields it, so that some
	// appends are withdrawn in the middle of the gathering on every machine.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	q := newQueue()
	ended := make(chan int)
	go func() {
		taken := 0
		for {
			group := q.take(nil)
			if len(group) == 0 {
				ended <- taken
				return
			}
			taken += len(group)
			for _, p := range group {
				q.release(p.size)
			}
			q.finished(0)
		}
	}()
	put, withdrawn := 0, 0
	rounds := 50_000
	if raceEnabled {
		rounds = 10_000
	}
	for range rounds {
		p := &appendRequest{stream: "s-1", size: 1}
		must(t, q.admit(t.Context(), p.stream, p.size))
		must(t, q.put(p))
		for range put % 5 { // so that some are withdrawn at each moment of the gathering
			runtime.Gosched()
		}
		if put++; q.withdraw(p) {
			withdrawn++
		}
		if put%3 == 0 {
			runtime.Gosched() // the committer finds an empty queue
		}
		select {
		case <-ended:
			t.Fatalf("the committer ended after %d appends, %d of them withdrawn", put, withdrawn)
		default:
		}
	}
	last := &appendRequest{stream: "s-1", size: 1}
	must(t, q.admit(t.Context(), last.stream, last.size))
	must(t, q.put(last))
	for waiting, _ := q.size(); waiting > 0; waiting, _ = q.size() {
		runtime.Gosched()
	}
	q.close()
	if taken := <-ended; taken != put-withdrawn+1 {
		t.Errorf("the committer took %d appends, want %d", taken, put-withdrawn+1)
	}
}

// A cancelled append releases its bytes, wherever it waited.
func TestACancelledAppendGivesBackItsRoom(t *testing.T) {
	t.Parallel()
	wantFree := func(t *testing.T, q *queue, where string) {
		t.Helper()
		if appends, held := q.size(); appends != 0 || held != 0 {
			t.Errorf("%s: the queue holds %d appends and %d bytes, want none", where, appends, held)
		}
	}
	t.Run("in the queue", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		if p := queued(t, q, "a-1", 1000); !q.withdraw(p) {
			t.Error("withdraw() = false, want true")
		}
		wantFree(t, q, "withdrawn")
	})
	for name, cancelled := range map[string]func(q *queue, cancel func()){
		"outside of the queue": func(q *queue, cancel func()) {
			cancel()
			synctest.Wait()
			q.release(maxQueueBytes)
		},
		"admitted at the same moment": func(q *queue, cancel func()) {
			q.mu.Lock()
			cancel() // wakes the append, which needs the lock to leave
			q.releaseLocked(maxQueueBytes)
			q.mu.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				must(t, q.admit(t.Context(), "a-1", maxQueueBytes))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- q.admit(ctx, "a-2", 1000) }()
				synctest.Wait()
				cancelled(q, cancel)
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("admit in a context that ended = %v, want its cause", err)
				}
				wantFree(t, q, name)
			})
		})
	}
	t.Run("before it was put", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		must(t, q.admit(t.Context(), "a-1", 1000))
		q.close()
		if err := q.put(&appendRequest{stream: "a-1", size: 1000}); !errors.Is(err, events.ErrClosed) {
			t.Errorf("put() into a closed queue = %v, want %v", err, events.ErrClosed)
		}
		wantFree(t, q, "put into a closed queue")
	})
}
