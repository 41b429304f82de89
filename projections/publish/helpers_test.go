package publish_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// start is the time of the first record of a test.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// claims returns a FileLocker of a new folder.
func claims(t testing.TB, holder string) publish.FileLocker {
	t.Helper()
	return publish.NewFileLocker(filepath.Join(t.TempDir(), "claims"), holder)
}

// A log is a store under test, with a lock folder, a mint of records and the lengths
// of its streams.
type log struct {
	t       *testing.T
	store   *embedded.Store
	claims  publish.Locker
	mint    *domain.Mint
	lengths map[events.Stream]events.Revision
	records int
}

// newLog returns a log over an empty store in memory.
func newLog(t *testing.T) *log {
	t.Helper()
	store, err := embedded.Open(t.Context(), "store", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return logOver(t, store)
}

// logOver returns a log over a store, whose records have times from start on.
func logOver(t *testing.T, store *embedded.Store) *log {
	clock := func() time.Time { return start }
	return &log{t: t, store: store, claims: claims(t, "test"), mint: domain.NewMint(clock, rand.NewChaCha8([32]byte{7})), lengths: map[events.Stream]events.Revision{}}
}

// add appends one record to a stream and returns its entry without a position. Record
// n of a log is n seconds after start.
func (l *log) add(s events.Stream, kind, data string) events.Entry {
	l.t.Helper()
	l.records++
	r := events.Record{
		ID: l.mint.Event(), Kind: kind, Version: 1, Time: start.Add(time.Duration(l.records) * time.Second),
		Data: []byte(data), Metadata: []byte(`{"n":1}`),
	}
	if err := l.store.Append(l.t.Context(), s, l.lengths[s], r); err != nil {
		l.t.Fatal(err)
	}
	l.lengths[s]++
	return events.Entry{Record: r, Stream: s, Revision: l.lengths[s]}
}

// fill appends n records to each of a number of streams, in turns.
func (l *log) fill(streams, n int) {
	l.t.Helper()
	for i := range n {
		for s := range streams {
			l.add(events.Stream(fmt.Sprintf("thing-%d", s)), "Happened", fmt.Sprintf(`{"i":%d}`, i))
		}
	}
}

// relay returns a new relay of the log. All of them share its locks, as relays of
// different processes do.
func (l *log) relay() *publish.Relay {
	return publish.NewRelay(l.store, l.store, l.claims, func() time.Time { return start.Add(time.Hour) })
}

// entries returns all records of the log.
func (l *log) entries() (all []events.Entry) {
	l.t.Helper()
	for e, err := range l.store.ReadAll(l.t.Context(), events.Position{}) {
		if err != nil {
			l.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// A sink is a Publisher that stores the messages it acknowledges. If refuse is not
// nil, the sink calls it for each message and refuses the message with its error.
type sink struct {
	refuse func(*message.Message) error
	mu     struct {
		sync.Mutex
		topics []string
		got    []*message.Message
	}
}

// Publish acknowledges the messages in order until refuse refuses one.
func (s *sink) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if s.refuse != nil {
			if err := s.refuse(m); err != nil {
				return err
			}
		}
		s.mu.Lock()
		s.mu.topics, s.mu.got = append(s.mu.topics, topic), append(s.mu.got, m)
		s.mu.Unlock()
	}
	return nil
}

func (s *sink) Close() error { return nil }

// got returns the acknowledged messages so far.
func (s *sink) got() []*message.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*message.Message(nil), s.mu.got...)
}

// positions returns the positions of the acknowledged messages, in order.
func (s *sink) positions() (all []string) {
	for _, m := range s.got() {
		all = append(all, m.Metadata.Get(publish.KeyPosition))
	}
	return all
}

// quick returns a policy with backoff of a microsecond.
func quick() publish.Policy {
	return publish.Policy{MinBackoff: time.Microsecond, MaxBackoff: time.Microsecond}
}

// job returns a job with the topic "records", the policy quick and some changes.
func job(t testing.TB, name string, change ...func(*publish.Job)) publish.Job {
	t.Helper()
	topic, err := publish.ParseTopic("records")
	if err != nil {
		t.Fatal(err)
	}
	j := publish.Job{Name: name, Target: "sink:", Topic: topic, Policy: quick()}
	for _, c := range change {
		c(&j)
	}
	return j
}

// consumer returns a consumer of a relay, which must exist.
func consumer(t *testing.T, d *publish.Relay, name string) publish.ConsumerState {
	t.Helper()
	c, err := d.Consumer(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// catchUp runs a job, which must succeed within a minute.
func catchUp(t *testing.T, d *publish.Relay, j publish.Job, to message.Publisher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.CatchUp(ctx, j, to); err != nil {
		t.Fatal(err)
	}
}
