package publish_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// While a consumer runs, no other relay with the same lock folder runs it, forgets it
// or opens a target for it. The error names the process that has the lock.
func TestAConsumerRunsOnceAmongAllRelays(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 2)
	folder := t.TempDir()
	deskOf := func(holder string) *publish.Relay {
		return publish.NewRelay(l.store, l.store, publish.NewFileLocker(folder, holder), time.Now)
	}
	first, second := deskOf("process 1"), deskOf("process 2")
	opened := false
	open := func(context.Context, publish.JobConfig, events.Position) (publish.Target, error) {
		opened = true
		return nil, errors.New("it is opened")
	}
	to := &sink{refuse: func(*message.Message) error {
		for what, err := range map[string]error{
			"run":    second.CatchUp(t.Context(), job(t, "a"), &sink{}),
			"open":   second.CatchUpConfigured(t.Context(), publish.JobConfig{Job: job(t, "a")}, open),
			"follow": second.FollowConfigured(t.Context(), publish.JobConfig{Job: job(t, "a")}, open),
			"forget": second.Forget(t.Context(), "a"),
			"again":  first.CatchUp(t.Context(), job(t, "a"), &sink{}),
		} {
			if !errors.Is(err, publish.ErrRunning) || !strings.Contains(err.Error(), "process 1") {
				t.Errorf("%s: %v, want ErrRunning that names process 1", what, err)
			}
		}
		if err := second.CatchUp(t.Context(), job(t, "b"), &sink{}); err != nil {
			t.Errorf("another name: %v", err)
		}
		return nil
	}}
	catchUp(t, first, job(t, "a"), to)
	if opened {
		t.Error("a target was opened for a consumer that runs elsewhere")
	}
	l.fill(1, 1)
	after := &sink{}
	catchUp(t, second, job(t, "a"), after)
	if got := after.positions(); !slices.Equal(got, []string{"3"}) {
		t.Errorf("when it is free it publishes %v, want [3]", got)
	}
	if err := second.Forget(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// A target that does not open leaves no consumer behind. A target is opened after the
// consumer is locked and closed before it is unlocked.
func TestATargetIsOpenOnlyWhileItsConsumerRuns(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 3)
	d := l.relay()
	o := publish.JobConfig{Job: job(t, "a", func(j *publish.Job) { j.Start = publish.Now() })}
	closed := errors.New("closed to you")
	err := d.CatchUpConfigured(t.Context(), o, func(context.Context, publish.JobConfig, events.Position) (publish.Target, error) { return nil, closed })
	if !errors.Is(err, closed) {
		t.Errorf("CatchUpOrder = %v, want what opening returned", err)
	}
	if _, err := d.Consumer(t.Context(), "a"); !errors.Is(err, publish.ErrNoConsumer) {
		t.Errorf("Consumer = %v, want ErrNoConsumer", err)
	}
	to := &closing{}
	o.Start = publish.Start{}
	for _, want := range []string{"0", "3"} {
		err = d.CatchUpConfigured(t.Context(), o, func(_ context.Context, _ publish.JobConfig, at events.Position) (publish.Target, error) {
			if at.String() != want {
				t.Errorf("opened for position %s, want %s", at, want)
			}
			to.held = func() error { return l.relay().Forget(t.Context(), "a") }
			return to, nil
		})
		if err != nil || !errors.Is(to.within, publish.ErrRunning) {
			t.Errorf("CatchUpOrder = %v, and while it closed Forget = %v; want none and ErrRunning", err, to.within)
		}
	}
	if len(to.got()) != 3 || to.times != 2 {
		t.Errorf("%d records arrived and it was closed %d times, want 3 and 2", len(to.got()), to.times)
	}
}

// A closing target calls held during Close and stores its error in within. times
// counts the calls of Close.
type closing struct {
	sink
	held   func() error
	within error
	times  int
}

func (c *closing) Close() error {
	c.times++
	c.within = c.held()
	return nil
}

// Relays that create and forget consumers at the same time lose no name of the index.
func TestConsumersMadeAtOnceAreAllListed(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 1)
	catchUp(t, l.relay(), job(t, "gone"), &sink{})
	var all sync.WaitGroup
	const many = 24
	for n := range many {
		all.Go(func() {
			if err := l.relay().CatchUp(t.Context(), job(t, fmt.Sprintf("c%02d", n)), &sink{}); err != nil {
				t.Error(err)
			}
		})
	}
	if err := l.relay().Forget(t.Context(), "gone"); err != nil {
		t.Error(err)
	}
	all.Wait()
	listed, err := l.relay().Consumers(t.Context())
	if err != nil || len(listed) != many || slices.ContainsFunc(listed, func(c publish.ConsumerState) bool { return c.Name == "gone" }) {
		t.Errorf("%d are listed (%v), want the %d that were made", len(listed), err, many)
	}
}

// A relay that changes the index waits for another one, and adds its name to the
// other's result.
func TestUpdatesOfTheIndexAreSerialized(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	refused, done := make(chan struct{}), make(chan error, 1)
	second := publish.NewRelay(l.store, l.store, &refusals{Locker: l.claims, first: refused}, time.Now)
	first := publish.NewRelay(l.store, &saving{ConsumerStore: l.store, name: "publish", before: func() {
		go func() { done <- second.CatchUp(t.Context(), job(t, "b"), &sink{}) }()
		select {
		case <-refused:
		case err := <-done:
			t.Errorf("the list was changed meanwhile (%v)", err)
			done <- err
		}
	}}, l.claims, time.Now)
	catchUp(t, first, job(t, "a"), &sink{})
	if err := <-done; err != nil {
		t.Error(err)
	}
	if all, err := first.Consumers(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("Consumers = %v, %v, want a and b", all, err)
	}
}

// A saving store calls before once, before it first saves a document of a name.
type saving struct {
	publish.ConsumerStore
	name   string
	once   sync.Once
	before func()
}

func (s *saving) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	if name == s.name {
		s.once.Do(s.before)
	}
	return s.ConsumerStore.SaveCheckpoint(ctx, name, data)
}

// A refusals is a Locker that closes first at its first ErrLocked.
type refusals struct {
	publish.Locker
	once  sync.Once
	first chan struct{}
}

func (r *refusals) Lock(name string) (io.Closer, error) {
	held, err := r.Locker.Lock(name)
	if errors.Is(err, publish.ErrLocked) {
		r.once.Do(func() { close(r.first) })
	}
	return held, err
}

// A retry request remains until a run has saved the consumer with it. A request for
// all dead letters includes every other request, before or after it.
func TestARetryRequestStaysUntilItIsSaved(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 4)
	refusing := &sink{refuse: func(*message.Message) error { return publish.ErrUnacceptable }}
	catchUp(t, l.relay(), job(t, "a"), refusing)
	held, err := l.claims.Lock("publish/a")
	if err != nil {
		t.Fatal(err)
	}
	for _, positions := range [][]events.Position{{events.NewPosition(9, 9)}, {events.NewPosition(2, 2)}, {}, {events.NewPosition(3, 3)}} {
		if _, err := l.relay().Retry(t.Context(), "a", positions...); err != nil {
			t.Fatal(err)
		}
		if kept, err := l.store.LoadCheckpoint(t.Context(), "publish/a/retry"); err != nil || strings.Contains(string(kept), "9") {
			t.Errorf("kept: %s, %v, want nothing of what is not set aside", kept, err)
		}
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	failing := publish.NewRelay(l.store, &failed{ConsumerStore: l.store, name: "publish/a"}, l.claims, time.Now)
	to := &sink{}
	if err := failing.CatchUp(t.Context(), job(t, "a"), refusing); !errors.Is(err, errFull) {
		t.Errorf("CatchUp = %v, want that it cannot be kept", err)
	}
	catchUp(t, l.relay(), job(t, "a"), to)
	if got := to.positions(); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
		t.Errorf("published %v, want all that was set aside, once", got)
	}
}

// A failed store saves every document except one.
type failed struct {
	publish.ConsumerStore
	name string
}

func (f *failed) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	if name == f.name {
		return errFull
	}
	return f.ConsumerStore.SaveCheckpoint(ctx, name, data)
}

// A run in another process takes a retry request within its interval. If it ends
// first, the next run takes the request, once.
func TestRetryReachesARunElsewhere(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 5)
	var mu sync.Mutex
	refused := map[string]bool{"2": true, "3": true, "4": true}
	to := &sink{refuse: func(m *message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if refused[m.Metadata.Get("position")] {
			return publish.ErrUnacceptable
		}
		return nil
	}}
	mend := func(position string) { mu.Lock(); defer mu.Unlock(); delete(refused, position) }
	running, elsewhere := l.relay(), l.relay()
	j := job(t, "a", func(j *publish.Job) { j.Policy.SaveInterval = time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- running.Follow(ctx, j, to) }()
	await(t, func() bool { c, err := elsewhere.Consumer(ctx, "a"); return err == nil && len(c.DeadLetters) == 3 })
	mend("2")
	if n, err := elsewhere.Retry(ctx, "a", events.NewPosition(2, 2)); n != 1 || err != nil {
		t.Fatalf("Retry = %d, %v, want 1", n, err)
	}
	await(t, func() bool { return len(consumer(t, elsewhere, "a").DeadLetters) == 2 })
	if n, err := elsewhere.Retry(ctx, "a", events.NewPosition(1, 1)); n != 0 || err != nil {
		t.Errorf("Retry of what is not set aside = %d, %v, want 0", n, err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}

	// A process that has the name ends before it takes up two wishes.
	held, err := l.claims.Lock("publish/a")
	if err != nil {
		t.Fatal(err)
	}
	for at := range uint64(2) {
		if n, err := elsewhere.Retry(t.Context(), "a", events.NewPosition(at+3, at+3)); n != 1 || err != nil {
			t.Fatalf("Retry = %d, %v, want 1", n, err)
		}
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	mend("3")
	before := len(to.got())
	catchUp(t, l.relay(), j, to)
	if got := to.positions()[before:]; !slices.Equal(got, []string{"3"}) {
		t.Errorf("the next run published %v, want [3]", got)
	}
	if c := consumer(t, elsewhere, "a"); len(c.DeadLetters) != 1 || c.DeadLetters[0].Tries != 2 || c.DeadLetters[0].Retry {
		t.Errorf("left set aside: %+v, want that at 4, tried twice", c.DeadLetters)
	}
	// A run takes a request once: no request asks for this dead letter again.
	mend("4")
	catchUp(t, l.relay(), j, to)
	if c := consumer(t, elsewhere, "a"); len(c.DeadLetters) != 1 {
		t.Errorf("left set aside: %+v, want that at 4", c.DeadLetters)
	}
}

// FollowAll reports a consumer that runs elsewhere, and runs it once the other run
// has ended.
func TestFollowAllTakesOverAConsumerWhoseRunEnds(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 3)
	held, err := l.claims.Lock("publish/a")
	if err != nil {
		t.Fatal(err)
	}
	to, refused := &sink{}, make(chan error, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- l.relay().FollowAll(ctx, []publish.JobConfig{{Job: job(t, "a")}},
			func(context.Context, publish.JobConfig, events.Position) (publish.Target, error) { return to, nil },
			func(_ string, err error, retryIn time.Duration) {
				if retryIn <= 0 {
					t.Errorf("retried %v in %s, want a positive time", err, retryIn)
				}
				refused <- err
			})
	}()
	if err := <-refused; !errors.Is(err, publish.ErrRunning) {
		t.Errorf("told %v, want ErrRunning", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return len(to.got()) == 3 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("FollowAll = %v, want that it was canceled", err)
	}
}

// After a power cut, a consumer that began at the end of the log is still there and
// begins at the same position, and a forgotten one stays forgotten.
func TestWhereAConsumerBeginsSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	open := func() *embedded.Store {
		store, err := embedded.Open(t.Context(), "store", embedded.Config{FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	crash := func(store *embedded.Store) *log {
		cut := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))})
		_ = store.Close()
		disk = cut
		return logOver(t, open())
	}
	l := logOver(t, open())
	l.fill(1, 3)
	j := job(t, "a", func(j *publish.Job) { j.Start = publish.Now() })
	l.store = crashing(t, l, j, crash)
	l.lengths["thing-0"] = 3
	l.fill(1, 2)
	to := &sink{}
	catchUp(t, l.relay(), j, to)
	if got := to.positions(); !slices.Equal(got, []string{"4", "5"}) {
		t.Errorf("after the power cut: published %v, want [4 5]", got)
	}
	if err := l.relay().Forget(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	l = crash(l.store)
	if all, err := l.relay().Consumers(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after a power cut: %v, %v, want that it is forgotten", all, err)
	}
	if err := l.store.Close(); err != nil {
		t.Error(err)
	}
}

// A relay publishes a record only once it is durable, even if the store acknowledges
// appends before that.
func TestOnlyDurableRecordsArePublished(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.Context(), "store", embedded.Config{FS: vfs.NewMem(), Durability: embedded.Interval(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	l := logOver(t, store)
	l.fill(2, 5)
	to := &sink{refuse: func(m *message.Message) error {
		at, err := events.ParsePosition(m.Metadata.Get("position"))
		if err != nil || at.Compare(store.Durable()) > 0 {
			t.Errorf("position %s is published (%v), and durable is only what is through %s", at, err, store.Durable())
		}
		return nil
	}}
	catchUp(t, l.relay(), job(t, "a"), to)
	l.fill(2, 1)
	catchUp(t, l.relay(), job(t, "a"), to)
	if len(to.got()) != 12 {
		t.Errorf("%d records arrived, want 12", len(to.got()))
	}
}

// crashing runs a job, cuts the power when its consumer has been created and before
// the consumer is saved again, and returns the store after the power cut.
func crashing(t *testing.T, l *log, j publish.Job, crash func(*embedded.Store) *log) *embedded.Store {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d, done := l.relay(), make(chan error, 1)
	go func() { done <- d.Follow(ctx, j, &sink{}) }()
	await(t, func() bool { c, err := d.Consumer(ctx, j.Name); return err == nil && c.Running })
	after := crash(l.store)
	cancel()
	if err := <-done; err == nil {
		t.Error("the run ended without an error, and its store was gone")
	}
	return after.store
}

// A retried dead letter is the same message, with the same topic.
func TestARetryPublishesTheSameMessage(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	stream := events.SessionStream(l.mint.Session())
	l.add(stream, "SessionOpened", `{"agent":"build"}`)
	l.add(stream, "CallSettled", `{"tool":"bash"}`)
	topic, err := publish.ParseTopic("{agent}.{tool}")
	if err != nil {
		t.Fatal(err)
	}
	j := job(t, "a", func(j *publish.Job) { j.Topic = topic })
	var first *message.Message
	catchUp(t, l.relay(), j, &sink{refuse: func(m *message.Message) error {
		if m.Metadata.Get("revision") == "1" {
			return nil
		}
		first = m
		return publish.ErrUnacceptable
	}})
	if n, err := l.relay().Retry(t.Context(), "a"); n != 1 || err != nil {
		t.Fatalf("Retry = %d, %v, want 1", n, err)
	}
	to := &sink{}
	catchUp(t, l.relay(), j, to)
	if got := to.got(); len(got) != 1 || !got[0].Equals(first) || to.mu.topics[0] != "build.bash" {
		t.Errorf("tried again: %v to %v, want %v to build.bash", got, to.mu.topics, first)
	}
}
