package publish_test

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/projections/publish/jsonl"
)

// A counted store counts the reads of streams, each of which is a round trip if the
// store is on a server.
type counted struct {
	events.Store
	reads atomic.Int64
	// ended is closed after ReadAll has yielded the last record, unless it is nil.
	ended chan struct{}
}

func (c *counted) Read(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	c.reads.Add(1)
	return c.Store.Read(ctx, s, after)
}

func (c *counted) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range c.Store.ReadAll(ctx, after) {
			if !yield(e, err) {
				return
			}
		}
		if c.ended != nil {
			close(c.ended)
		}
	}
}

// A batcher stores the batches that it receives. It waits for ready before it accepts
// the first.
type batcher struct {
	sink
	ready   <-chan struct{}
	batches [][]publish.Routed
}

// PublishBatch stores the batch as it is.
func (b *batcher) PublishBatch(batch ...publish.Routed) error {
	<-b.ready
	b.batches = append(b.batches, batch)
	return nil
}

// topicByKind returns a change of a job that sets DefaultTopic, so that the topic
// depends on the kind.
func topicByKind(t testing.TB) func(*publish.Job) {
	t.Helper()
	topic, err := publish.ParseTopic(publish.DefaultTopic)
	if err != nil {
		t.Fatal(err)
	}
	return func(j *publish.Job) { j.Topic = topic }
}

// A Batcher receives the records that arrived while it was busy as one batch, of any
// topics and in order.
func TestABatchHasTheRecordsThatArrivedMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	const many = 100
	for n := range many {
		l.add("thing-1", fmt.Sprintf("Kind%d", n%3), "{}")
	}
	store := &counted{Store: sliceOf(t, l.entries()), ended: make(chan struct{})}
	to := &batcher{ready: store.ended}
	j := job(t, "a", topicByKind(t), func(j *publish.Job) { j.Policy.Batch = many })
	if err := publish.NewRelay(store, &memory{}, claims(t, "test"), time.Now).CatchUp(t.Context(), j, to); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, batch := range to.batches {
		for _, r := range batch {
			if want := fmt.Sprintf(".Kind%d", n%3); !strings.HasSuffix(r.Topic, want) || r.Message.Metadata.Get(publish.KeyRevision) != fmt.Sprint(n+1) {
				t.Fatalf("record %d is revision %s with the topic %s, want one that ends with %s", n, r.Message.Metadata.Get(publish.KeyRevision), r.Topic, want)
			}
			n++
		}
	}
	if n != many || len(to.batches) > 2 {
		t.Errorf("%d records in %d batches, want %d in at most 2: what was there at first, and the rest", n, len(to.batches), many)
	}
}

// A run from the beginning of the log reads no stream to learn the agents of its
// records.
func TestLearningAgentsCostsNoExtraReads(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	mint := domain.NewMint(time.Now, strings.NewReader(strings.Repeat("seed", 1000)))
	for range 10 {
		s := events.SessionStream(mint.Session())
		l.add(s, "SessionOpened", `{"agent":"build"}`)
		l.add(s, "Happened", "{}")
		l.add("thing-1", "Happened", "{}")
	}
	store := &counted{Store: sliceOf(t, l.entries())}
	to := &sink{}
	if err := publish.NewRelay(store, &memory{}, claims(t, "test"), time.Now).CatchUp(t.Context(), job(t, "a"), to); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range to.got() {
		if m.Metadata.Get(publish.KeyAgent) == "build" {
			n++
		}
	}
	if got := store.reads.Load(); got != 0 || n != 20 {
		t.Errorf("%d streams were read and %d records have their agent, want none and 20", got, n)
	}
}

// An onlyPublisher hides that its target is a Batcher.
type onlyPublisher struct{ message.Publisher }

// BenchmarkPublishToAFile compares publishing with and without batches, from a folder
// and from a server. Consecutive records have different kinds, and so different
// topics, as the records of a call have.
func BenchmarkPublishToAFile(b *testing.B) {
	store, err := embedded.Open(b.Context(), b.TempDir(), embedded.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	mint, many := domain.NewMint(time.Now, strings.NewReader(strings.Repeat("seed", 1<<20))), 5000
	records := make([]events.Record, many)
	for i := range records {
		records[i] = events.Record{ID: mint.Event(), Kind: fmt.Sprintf("Kind%d", i%3), Version: 1, Time: time.Now().UTC().Truncate(time.Microsecond), Data: []byte(`{"n":1}`)}
	}
	if err := store.Append(b.Context(), "thing-1", 0, records...); err != nil {
		b.Fatal(err)
	}
	for from, s := range map[string]events.Store{"folder": store, "server": connected(b, store)} {
		for _, batched := range []bool{false, true} {
			b.Run(fmt.Sprintf("from=%s/batches=%t", from, batched), func(b *testing.B) {
				for b.Loop() {
					f, err := jsonl.Open(filepath.Join(b.TempDir(), "f"), events.Position{})
					if err != nil {
						b.Fatal(err)
					}
					j := job(b, "a", topicByKind(b))
					var to publish.Target = onlyPublisher{f}
					if batched {
						to, j.Policy.Batch = f, 512
					}
					if err := publish.NewRelay(s, &memory{}, claims(b, "test"), time.Now).CatchUp(b.Context(), j, to); err != nil {
						b.Fatal(err)
					}
					if err := f.Close(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(many)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}
