package publish_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// A message has the event ID, the unchanged data, and the metadata that the record
// has. Data that are not JSON, or have a tool of another type, give no attributes.
func TestAMessageIsTheRecordAsWritten(t *testing.T) {
	t.Parallel()
	l, to := newLog(t), &sink{}
	session := l.mint.Session()
	stream := events.SessionStream(session)
	l.add(stream, "SessionOpened", `{"session":"x","agent":"build"}`)
	e := l.add(stream, "CallSettled", ` {"tool":"bash <&>", "odd":"\u2028"} `)
	l.add("thing-1", "NeverHeardOf", `{"tool":{"not":"text"}}`)
	l.add("thing-1", "NotJSON", "\x00\xff")
	of := events.Record{ID: l.mint.Event(), Kind: "Beside", Version: 3, Time: start, Data: []byte(`{}`), Metadata: fmt.Appendf(nil, `{"$correlationId":%q}`, session)}
	if err := l.store.Append(t.Context(), "thing-2", 0, of); err != nil {
		t.Fatal(err)
	}
	catchUp(t, l.relay(), job(t, "a"), to)
	got := to.got()
	if len(got) != 5 {
		t.Fatalf("published %d messages, want 5", len(got))
	}
	if beside := got[4].Metadata; beside.Get("session") != session.String() || beside.Get("agent") != "build" || beside.Get("version") != "3" {
		t.Errorf("metadata of a record that names its session = %v, want session and agent", beside)
	}
	want := map[string]string{
		"stream": string(stream), "revision": "2", "position": "2", "kind": "CallSettled", "version": "1",
		"time": "2026-03-01T12:00:02Z", "session": session.String(), "agent": "build", "tool": "bash <&>", "metadata": `{"n":1}`,
	}
	if diff := cmp.Diff(want, map[string]string(got[1].Metadata)); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if got[1].UUID != e.ID.String() || string(got[1].Payload) != string(e.Data) {
		t.Errorf("message = %s %q, want %s %q", got[1].UUID, got[1].Payload, e.ID, e.Data)
	}
	for _, m := range got[2:4] {
		if m.Metadata.Get("tool") != "" || m.Metadata.Get("session") != "" {
			t.Errorf("metadata of %s = %v, want no tool and no session", m.Metadata.Get("kind"), m.Metadata)
		}
	}
	if string(got[3].Payload) != "\x00\xff" {
		t.Errorf("payload = %q, want the bytes as written", got[3].Payload)
	}
}

// A relay publishes the records that match every field of the filter, and Lag counts
// the same. The position advances over the others.
func TestTheFilterSelectsTheRecordsPublished(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	one, two := events.SessionStream(l.mint.Session()), events.SessionStream(l.mint.Session())
	l.add(one, "SessionOpened", `{"agent":"build"}`)
	l.add(two, "SessionOpened", `{"agent":"plan"}`)
	l.add(one, "CallStarted", `{"tool":"bash"}`)
	l.add(two, "CallStarted", `{"tool":"bash"}`)
	l.add(one, "CallSettled", `{"tool":"read"}`)
	l.add("thing-1", "CallStarted", `{"tool":"bash"}`)
	for name, c := range map[string]struct {
		only publish.Filter
		want []string
	}{
		"all":        {publish.Filter{}, []string{"1", "2", "3", "4", "5", "6"}},
		"kind":       {publish.Filter{Kinds: []string{"CallStarted"}}, []string{"3", "4", "6"}},
		"category":   {publish.Filter{Categories: []string{"thing"}}, []string{"6"}},
		"stream":     {publish.Filter{Streams: []string{string(two)}}, []string{"2", "4"}},
		"tool":       {publish.Filter{Tools: []string{"bash", "nope"}}, []string{"3", "4", "6"}},
		"agent":      {publish.Filter{Agents: []string{"build"}}, []string{"1", "3", "5"}},
		"all-of-all": {publish.Filter{Kinds: []string{"CallStarted"}, Tools: []string{"bash"}, Agents: []string{"plan"}}, []string{"4"}},
	} {
		to, d := &sink{}, l.relay()
		lag, err := d.Lag(t.Context(), publish.ConsumerState{Name: name, Filter: c.only})
		if first, _ := strconv.Atoi(c.want[0]); err != nil || lag.Records != uint64(len(c.want)) || lag.Behind(start.Add(time.Minute)) != time.Minute-time.Duration(first)*time.Second {
			t.Errorf("%s: Lag = %+v, %v, want %d records since the first", name, lag, err, len(c.want))
		}
		catchUp(t, d, job(t, name, func(j *publish.Job) { j.Filter = c.only }), to)
		if lag, err := d.Lag(t.Context(), consumer(t, d, name)); err != nil || lag.Records != 0 {
			t.Errorf("%s: at the end Lag = %+v, %v, want none", name, lag, err)
		}
		// The relay itself skips records by tool and agent; the position includes
		// them.
		if c := consumer(t, d, name); len(c.Filter.Tools)+len(c.Filter.Agents) > 0 && len(c.Filter.Kinds) == 0 && c.Position.String() != "6" {
			t.Errorf("%s: position = %s, want 6", name, c.Position)
		}
		if got := to.positions(); !slices.Equal(got, c.want) {
			t.Errorf("%s: published %v, want %v", name, got, c.want)
		}
	}
}

// Although the target refuses at random and runs are cancelled at random, every
// record arrives, the records of a stream in order, and each repeat with the same
// UUID.
func TestEveryRecordArrivesInTheOrderOfItsStream(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			l := newLog(t)
			l.fill(7, 40)
			random := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return random.IntN(n) == 0 }
			to := &sink{}
			for run := range 30 {
				ctx, cancel := context.WithCancel(t.Context())
				to.refuse = func(*message.Message) error {
					switch {
					case chance(5):
						return publish.ErrUnavailable
					case run < 20 && chance(40):
						cancel()
					}
					return nil
				}
				j := job(t, "a", func(j *publish.Job) {
					j.Policy.Workers, j.Policy.Batch, j.Policy.InFlight = 1+random.IntN(4), 1+random.IntN(4), 1+random.IntN(30)
				})
				err := l.relay().CatchUp(ctx, j, to)
				cancel()
				if err == nil {
					break
				}
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
			}
			arrived(t, to.got(), l.entries())
		})
	}
}

// arrived checks that the messages contain every entry, each with the event ID of its
// place. Within a stream, each revision is at most one above the highest before it.
func arrived(t *testing.T, got []*message.Message, want []events.Entry) {
	t.Helper()
	lengths, ids := map[string]int{}, map[string]string{}
	for _, m := range got {
		stream := m.Metadata.Get(publish.KeyStream)
		revision, err := strconv.Atoi(m.Metadata.Get(publish.KeyRevision))
		if err != nil {
			t.Fatal(err)
		}
		if revision > lengths[stream]+1 {
			t.Fatalf("%s: revision %d after %d", stream, revision, lengths[stream])
		}
		lengths[stream] = max(lengths[stream], revision)
		place := fmt.Sprint(stream, revision)
		if id, ok := ids[place]; ok && id != m.UUID {
			t.Fatalf("%s: repeated as %s, want %s", place, m.UUID, id)
		}
		ids[place] = m.UUID
	}
	for _, e := range want {
		if got := ids[fmt.Sprint(e.Stream, e.Revision)]; got != e.ID.String() {
			t.Fatalf("revision %d of %s arrived as %q, want %s", e.Revision, e.Stream, got, e.ID)
		}
	}
}

// The position never exceeds an unacknowledged record, although other workers are
// ahead of it.
func TestThePositionWaitsForTheSlowestWorker(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(20, 5)
	held, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	to := &sink{}
	to.refuse = func(m *message.Message) error {
		if m.Metadata.Get("stream") == "thing-3" {
			first.Do(func() { close(held) })
			<-release
		}
		return nil
	}
	d := l.relay()
	j := job(t, "a", func(j *publish.Job) { j.Policy.Workers = 8 })
	done := make(chan error, 1)
	go func() { done <- d.CatchUp(t.Context(), j, to) }()
	<-held
	before := func(p string) bool { return slices.Contains([]string{"0", "1", "2", "3"}, p) }
	if c := consumer(t, d, "a"); !before(c.Position.String()) || !c.Running {
		t.Errorf("with the fourth record open, the position is %s (running %v), want at most 3", c.Position, c.Running)
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if c := consumer(t, d, "a"); c.Position.String() != "100" || c.Published != 100 || c.Running {
		t.Errorf("at the end: position %s, %d published, running %v; want 100, 100, false", c.Position, c.Published, c.Running)
	}
}

// A run publishes only the records after the position of the consumer.
func TestTheNextRunGoesOnWhereTheLastOneEnded(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(2, 3)
	catchUp(t, l.relay(), job(t, "a"), &sink{})
	l.fill(1, 2)
	to := &sink{}
	catchUp(t, l.relay(), job(t, "a"), to)
	if got, want := to.positions(), []string{"7", "8"}; !slices.Equal(got, want) {
		t.Errorf("the second run published %v, want %v", got, want)
	}
}

// A consumer begins at the beginning, at the end, or after a position, and a later
// run ignores the start.
func TestAConsumerBeginsAtItsStart(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 4)
	d := l.relay()
	whence := map[string][]string{"beginning": {"1", "2", "3", "4", "5"}, "now": {"5"}, "3": {"4", "5"}}
	sinks, jobs := map[string]*sink{}, map[string]publish.Job{}
	for text := range whence {
		from, err := publish.ParseStart(text)
		if err != nil || from.String() != text {
			t.Fatalf("ParseStart(%q) = %v, %v", text, from, err)
		}
		sinks[text], jobs[text] = &sink{}, job(t, "from-"+text, func(j *publish.Job) { j.Start = from })
		catchUp(t, d, jobs[text], sinks[text])
	}
	l.fill(1, 1)
	for text, want := range whence {
		catchUp(t, d, jobs[text], sinks[text])
		if got := sinks[text].positions(); !slices.Equal(got, want) {
			t.Errorf("from %s: published %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"", "Now", "-1", "1/x"} {
		if _, err := publish.ParseStart(text); err == nil {
			t.Errorf("ParseStart(%q) is no error", text)
		}
	}
}

// A record is a dead letter after an ErrUnacceptable or the set number of tries, and
// a panic counts as a try. The other records of its batch arrive. Retry publishes
// dead letters again, and an acknowledged one leaves the list.
func TestARefusedRecordBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(2, 10)
	refused := map[string]error{"5": publish.ErrUnacceptable, "8": errors.New("odd"), "9": nil}
	to, tries := &sink{}, map[string]int{}
	to.refuse = func(m *message.Message) error {
		at := m.Metadata.Get("position")
		tries[at]++
		if at == "9" && len(tries) > 0 && tries[at] < 3 {
			panic("once or twice")
		}
		return refused[at]
	}
	d := l.relay()
	j := job(t, "a", func(j *publish.Job) { j.Policy.Batch, j.Policy.Tries = 6, 4 })
	catchUp(t, d, j, to)
	c := consumer(t, d, "a")
	var listed []string
	for _, p := range c.DeadLetters {
		listed = append(listed, fmt.Sprint(p.Position, " ", p.Tries, " ", p.LastError.Text))
	}
	want := []string{"5 1 target does not accept the record", "8 4 odd"}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("poison (-want +got):\n%s", diff)
	}
	if c.Position.String() != "20" {
		t.Errorf("position = %s, want 20", c.Position)
	}
	got := map[string]bool{}
	for _, p := range to.positions() {
		got[p] = true
	}
	if len(got) != 18 || got["5"] || got["8"] {
		t.Errorf("published %v, want all but 5 and 8", got)
	}

	// They are listed until they are tried again and taken.
	to.refuse = func(m *message.Message) error { return refused[m.Metadata.Get("position")] }
	refused["8"] = nil
	if n, err := d.Retry(t.Context(), "a"); n != 2 || err != nil {
		t.Fatalf("Retry = %d, %v, want 2", n, err)
	}
	before := len(to.got())
	catchUp(t, d, j, to)
	if got := to.positions()[before:]; !slices.Equal(got, []string{"8"}) {
		t.Errorf("tried again: %v, want [8]", got)
	}
	if c := consumer(t, d, "a"); len(c.DeadLetters) != 1 || c.DeadLetters[0].Position.String() != "5" || c.DeadLetters[0].Retry {
		t.Errorf("poison = %+v, want that at 5", c.DeadLetters)
	}
}

// Attempts with an ErrUnavailable do not count as tries, and the saved error has at
// most 500 bytes.
func TestOnlyRefusalsCountAgainstARecord(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 2)
	tries := map[string]int{}
	to := &sink{refuse: func(m *message.Message) error {
		at := m.Metadata.Get("position")
		switch tries[at]++; {
		case tries[at] <= 6:
			return publish.ErrUnavailable
		case tries[at] <= 8 || at == "2":
			return errors.New(strings.Repeat("odd ", 1000))
		}
		return nil
	}}
	d := l.relay()
	catchUp(t, d, job(t, "a", func(j *publish.Job) { j.Policy.Tries = 3 }), to)
	c := consumer(t, d, "a")
	if got := to.positions(); !slices.Equal(got, []string{"1"}) || len(c.DeadLetters) != 1 || c.DeadLetters[0].Tries != 3 {
		t.Errorf("published %v and set aside %+v, want 1, and 2 after 3 tries", got, c.DeadLetters)
	}
	if n := len(c.DeadLetters[0].LastError.Text); n == 0 || n > 500 {
		t.Errorf("%d bytes of the error are kept, want at most 500", n)
	}
}

// For a target that is no Batcher, all records of a batch have one topic.
func TestABatchIsOfOneTopic(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	for n := range 12 {
		l.add("thing-1", []string{"A", "A", "B"}[n%3], `{}`)
	}
	topic, err := publish.ParseTopic("{kind}")
	if err != nil {
		t.Fatal(err)
	}
	watched := &counting{Store: l.store}
	d := publish.NewRelay(watched, l.store, l.claims, time.Now)
	to := &sink{refuse: func(*message.Message) error { await(t, func() bool { return watched.count() == 12 }); return nil }}
	catchUp(t, d, job(t, "a", func(j *publish.Job) { j.Topic, j.Policy.Batch = topic, 8 }), to)
	for i, m := range to.got() {
		if kind := m.Metadata.Get("kind"); to.mu.topics[i] != kind {
			t.Errorf("record %d, of kind %s, was handed over to %s", i+1, kind, to.mu.topics[i])
		}
	}
	var want []string
	for n := range 12 {
		want = append(want, strconv.Itoa(n+1))
	}
	if got := to.positions(); !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
}

// A dead letter whose place in the log has another record ends the run with
// ErrDamaged, and that record is not published.
func TestARetryRefusesAnotherRecordAtTheSamePlace(t *testing.T) {
	t.Parallel()
	kept := &memory{}
	l := newLog(t)
	l.fill(1, 1)
	refusing := &sink{refuse: func(*message.Message) error { return publish.ErrUnacceptable }}
	catchUp(t, publish.NewRelay(l.store, kept, l.claims, time.Now), job(t, "a"), refusing)
	other := newLog(t)
	other.add("other-1", "Happened", `{}`)
	other.fill(1, 1)
	d := publish.NewRelay(other.store, kept, other.claims, time.Now)
	if n, err := d.Retry(t.Context(), "a"); n != 1 || err != nil {
		t.Fatalf("Retry = %d, %v, want 1", n, err)
	}
	to := &sink{}
	if err := d.CatchUp(t.Context(), job(t, "a"), to); !errors.Is(err, events.ErrDamaged) || len(to.got()) != 0 {
		t.Errorf("CatchUp = %v with %d published, want ErrDamaged and none", err, len(to.got()))
	}
}

// The consumer is saved after 1,000 acknowledgements, before its interval has passed.
func TestTheCheckpointIsSavedWhenThereIsMuch(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 1200)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	j := job(t, "a", func(j *publish.Job) { j.Policy.SaveInterval = time.Hour })
	go func() { done <- l.relay().Follow(ctx, j, &sink{}) }()
	elsewhere := l.relay()
	await(t, func() bool { c, err := elsewhere.Consumer(ctx, "a"); return err == nil && c.Published >= 1000 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow = %v, want that it was canceled", err)
	}
}

// Retry on the relay that runs the consumer publishes the dead letter during the run.
func TestRetryReachesARunningConsumerAtOnce(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 3)
	var mu sync.Mutex
	err, taken := publish.ErrUnacceptable, make(chan struct{})
	to := &sink{refuse: func(m *message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Metadata.Get("position") == "2" && err == nil {
			close(taken)
		} else if m.Metadata.Get("position") == "2" {
			return err
		}
		return nil
	}}
	d := l.relay()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Follow(ctx, job(t, "a"), to) }()
	await(t, func() bool { c, err := d.Consumer(ctx, "a"); return err == nil && c.Position.String() == "3" })
	mu.Lock()
	err = nil
	mu.Unlock()
	if n, err := d.Retry(ctx, "a", events.NewPosition(2, 2)); n != 1 || err != nil {
		t.Fatalf("Retry = %d, %v, want 1", n, err)
	}
	<-taken
	await(t, func() bool { return len(consumer(t, d, "a").DeadLetters) == 0 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow = %v, want that it was canceled", err)
	}
	if c, err := l.relay().Consumer(t.Context(), "a"); err != nil || len(c.DeadLetters) != 0 {
		t.Errorf("kept: %+v, %v, want no poison", c.DeadLetters, err)
	}
}

// await polls until a condition holds, for at most 30 seconds.
func await(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came to be")
		}
	}
}

// A run ends with ErrTooManyDeadLetters at each of its two limits, and the next run
// begins with the record that reached the limit.
func TestATargetThatTakesNothingEndsTheRun(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(3, 10)
	broken := &sink{refuse: func(*message.Message) error { return errors.New("broken") }}
	d := l.relay()
	j := job(t, "a", func(j *publish.Job) { j.Policy.Tries, j.Policy.MaxConsecutive = 1, 4 })
	if err := d.CatchUp(t.Context(), j, broken); !errors.Is(err, publish.ErrTooManyDeadLetters) {
		t.Fatalf("CatchUp = %v, want ErrPoisoned", err)
	}
	if c := consumer(t, d, "a"); len(c.DeadLetters) != 4 || c.Position.String() != "4" {
		t.Errorf("%d set aside at position %s, want 4 at 4", len(c.DeadLetters), c.Position)
	}
	to := &sink{}
	catchUp(t, d, j, to)
	if got := to.positions(); len(got) != 26 || got[0] != "5" {
		t.Errorf("the next run published %v, want what was not set aside", got)
	}

	most := job(t, "b", func(j *publish.Job) { j.Policy.Tries, j.Policy.MaxDeadLetters, j.Policy.MaxConsecutive = 1, 6, 2 })
	odd := &sink{refuse: func(m *message.Message) error {
		if n, _ := strconv.Atoi(m.Metadata.Get("position")); n%2 == 1 {
			return publish.ErrUnacceptable
		}
		return nil
	}}
	if err := d.CatchUp(t.Context(), most, odd); !errors.Is(err, publish.ErrTooManyDeadLetters) {
		t.Fatalf("CatchUp = %v, want ErrPoisoned", err)
	}
	if c := consumer(t, d, "b"); len(c.DeadLetters) != 6 || c.Position.String() != "12" {
		t.Errorf("%d set aside at position %s, want 6 at 12", len(c.DeadLetters), c.Position)
	}
}

// During a run, another run or Forget of its name returns ErrRunning, and a run of
// another name works.
func TestANameRunsOnceAtATime(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 1)
	d, within := l.relay(), make(chan error, 3)
	to := &sink{refuse: func(*message.Message) error {
		within <- d.CatchUp(t.Context(), job(t, "a"), &sink{})
		within <- d.Forget(t.Context(), "a")
		within <- d.CatchUp(t.Context(), job(t, "b"), &sink{})
		return nil
	}}
	catchUp(t, d, job(t, "a"), to)
	for i, want := range []error{publish.ErrRunning, publish.ErrRunning, nil} {
		if err := <-within; !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", i, err, want)
		}
	}
}

// A consumer refuses a job with another target, topic or filter until it is
// forgotten.
func TestAConsumerKeepsWhatItWasMadeFor(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 2)
	d := l.relay()
	catchUp(t, d, job(t, "a"), &sink{})
	other, err := publish.ParseTopic("elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*publish.Job){
		"target": func(j *publish.Job) { j.Target = "other:" },
		"topic":  func(j *publish.Job) { j.Topic = other },
		"only":   func(j *publish.Job) { j.Filter.Tools = []string{"bash"} },
	} {
		if err := d.CatchUp(t.Context(), job(t, "a", change), &sink{}); !errors.Is(err, publish.ErrDifferentJob) {
			t.Errorf("%s: CatchUp = %v, want ErrOther", name, err)
		}
	}
	if err := d.Forget(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Consumer(t.Context(), "a"); !errors.Is(err, publish.ErrNoConsumer) {
		t.Errorf("after Forget: Consumer = %v, want ErrNoConsumer", err)
	}
	if all, err := d.Consumers(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("after Forget: Consumers = %v, %v, want none", all, err)
	}
	if err := d.Forget(t.Context(), "a"); !errors.Is(err, publish.ErrNoConsumer) {
		t.Errorf("Forget again = %v, want ErrNoConsumer", err)
	}
	to := &sink{}
	catchUp(t, d, job(t, "a", func(j *publish.Job) { j.Topic = other }), to)
	if len(to.got()) != 2 {
		t.Errorf("begun anew: %d records, want 2", len(to.got()))
	}
}

// The records that were read and not acknowledged never exceed the numbers of records
// and bytes in the policy, by more than the one record that waits for a slot.
func TestNoMoreIsInFlightThanThePolicySays(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(5, 40)
	for name, c := range map[string]struct {
		change func(*publish.Policy)
		most   int
	}{
		"records": {func(p *publish.Policy) { p.InFlight = 9 }, 9},
		"bytes":   {func(p *publish.Policy) { p.Bytes = 64 }, 64 / len(`{"i":0}{"n":1}`)},
		"one":     {func(p *publish.Policy) { p.Bytes = 1 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watched := &counting{Store: l.store}
			d := publish.NewRelay(watched, l.store, l.claims, func() time.Time { return start })
			worst, acknowledged := 0, 0
			to := &sink{refuse: func(*message.Message) error {
				await(t, func() bool { return watched.stalled(acknowledged+c.most) || watched.count() == 200 })
				worst = max(worst, watched.count()-acknowledged)
				acknowledged++
				return nil
			}}
			catchUp(t, d, job(t, name, func(j *publish.Job) { c.change(&j.Policy) }), to)
			if acknowledged != 200 || worst > c.most+1 { // one more record waits for a slot
				t.Errorf("%d acknowledged, at worst %d read and not, want 200 and at most %d", acknowledged, worst, c.most+1)
			}
		})
	}
}

// A counting store counts the entries that ReadAll yields.
type counting struct {
	events.Store
	mu sync.Mutex
	n  int
}

// count returns the number of entries yielded so far.
func (c *counting) count() int { c.mu.Lock(); defer c.mu.Unlock(); return c.n }

// stalled reports whether ReadAll has yielded n entries.
func (c *counting) stalled(n int) bool { return c.count() >= n }

func (c *counting) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range c.Store.ReadAll(ctx, after) {
			c.mu.Lock()
			c.n++
			c.mu.Unlock()
			if !yield(e, err) {
				return
			}
		}
	}
}

// Lag counts the records after the position, and Behind is the age of the first.
func TestLagCountsTheRecordsAfterThePosition(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	d := l.relay()
	l.fill(1, 3)
	catchUp(t, d, job(t, "a"), &sink{})
	lag, err := d.Lag(t.Context(), consumer(t, d, "a"))
	if err != nil || lag.Records != 0 || lag.Behind(start) != 0 {
		t.Errorf("Lag = %+v, %v, want none", lag, err)
	}
	l.fill(1, 4)
	lag, err = d.Lag(t.Context(), consumer(t, d, "a"))
	if err != nil || lag.Records != 4 || lag.Behind(start.Add(time.Minute)) != 56*time.Second {
		t.Errorf("Lag = %+v, %v, want 4 records for 56 s", lag, err)
	}
}

// A consumer whose saved document is damaged is listed with the error, does not run,
// and can be forgotten.
func TestADamagedConsumerIsAnErrorAndNotAbsent(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	d := l.relay()
	l.fill(1, 1)
	catchUp(t, d, job(t, "a"), &sink{})
	for _, data := range []string{"{", "null", `{"format":2,"name":"a"}`, `{"format":1,"name":"b"}`} {
		if err := l.store.SaveCheckpoint(t.Context(), "publish/a", []byte(data)); err != nil {
			t.Fatal(err)
		}
		to := &sink{}
		if err := d.CatchUp(t.Context(), job(t, "a"), to); !errors.Is(err, publish.ErrDamaged) || len(to.got()) != 0 {
			t.Errorf("%s: CatchUp = %v, want ErrDamaged", data, err)
		}
		all, err := d.Consumers(t.Context())
		if err != nil || len(all) != 1 || all[0].LastError == nil {
			t.Errorf("%s: Consumers = %v, %v, want one in trouble", data, all, err)
		}
	}
	if err := d.Forget(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// A damaged record ends the run with ErrDamaged, and the position stays before it.
func TestADamagedRecordEndsTheRunBeforeIt(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 3)
	d := publish.NewRelay(&breaking{l.store}, l.store, l.claims, time.Now)
	to := &sink{}
	if err := d.CatchUp(t.Context(), job(t, "a"), to); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("CatchUp = %v, want ErrDamaged", err)
	}
	if c := consumer(t, d, "a"); c.Position.Compare(events.NewPosition(2, 2)) > 0 {
		t.Errorf("position = %s, want one before the damage", c.Position)
	}
}

// A breaking store yields an error in place of the records after position 2.
type breaking struct{ events.Store }

func (b *breaking) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range b.Store.ReadAll(ctx, after) {
			if e.Position.Compare(events.NewPosition(2, 2)) > 0 {
				yield(events.Entry{}, events.ErrDamaged)
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// The names of consumers follow the rule of ValidName.
func TestNamesOfConsumers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{
		"a": nil, "audit.v2_x-1": nil, strings.Repeat("a", 64): nil, "": publish.ErrBadName, "A": publish.ErrBadName,
		".a": publish.ErrBadName, "a/b": publish.ErrBadName, strings.Repeat("a", 65): publish.ErrBadName, "ä": publish.ErrBadName,
	} {
		if err := publish.ValidName(name); !errors.Is(err, want) {
			t.Errorf("ValidName(%q) = %v, want %v", name, err, want)
		}
	}
	if err := newLog(t).relay().CatchUp(t.Context(), job(t, "A"), &sink{}); !errors.Is(err, publish.ErrBadName) {
		t.Errorf("CatchUp = %v, want ErrBadName", err)
	}
}

// A memory is a ConsumerStore in a map, whose saves fail once full is set.
type memory struct {
	mu   sync.Mutex
	kept map[string][]byte
	full bool
}

// errFull is the error of a save of a full memory.
var errFull = errors.New("no room")

func (k *memory) SaveCheckpoint(_ context.Context, name string, data []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.full {
		return errFull
	}
	if k.kept == nil {
		k.kept = map[string][]byte{}
	}
	k.kept[name] = slices.Clone(data)
	return nil
}

func (k *memory) Sync(context.Context) error { return nil }

func (k *memory) LoadCheckpoint(_ context.Context, name string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.kept[name]), nil
}

// A run whose consumer cannot be saved returns the error of the save.
func TestACheckpointThatIsNotSavedIsAnError(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.fill(1, 3)
	kept := &memory{}
	d := publish.NewRelay(l.store, kept, l.claims, time.Now)
	to := &sink{refuse: func(*message.Message) error {
		kept.mu.Lock()
		defer kept.mu.Unlock()
		kept.full = true
		return nil
	}}
	if err := d.CatchUp(t.Context(), job(t, "a"), to); !errors.Is(err, errFull) {
		t.Errorf("CatchUp = %v, want that the checkpoint was not saved", err)
	}
}
