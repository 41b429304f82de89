package publish

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
	"golang.org/x/sync/semaphore"
)

// A run is a publication in progress. One goroutine reads the log and
// distributes records over the queues, all records of a stream to the same
// queue. One worker per queue publishes them, one goroutine saves the
// consumer, and one retries dead letters.
type run struct {
	relay       *Relay
	job         Job
	policy      Policy
	to          message.Publisher
	batcher     Batcher // to, if it is one
	agents      agentCache
	queues      []chan outgoing
	seed        maphash.Seed
	recordSlots *semaphore.Weighted // of records in flight
	byteSlots   *semaphore.Weighted // of these
	saveSoon    chan struct{}       // holds one: the checkpoint is to be saved soon
	retrySoon   chan struct{}       // holds one: something set aside is to be tried again

	saveMu sync.Mutex // held while the checkpoint is saved; taken before mu
	mu     struct {
		sync.Mutex
		consumer    Consumer
		window      ackWindow
		unsaved     int // changes since the checkpoint
		consecutive int // records set aside since the last acknowledgement
	}
}

// An outgoing is a record between the log and the target.
type outgoing struct {
	entry events.Entry
	attrs attributes
	topic string
	slot  *windowSlot // nil for one that was set aside before
}

func (p outgoing) size() int { return len(p.entry.Data) + len(p.entry.Metadata) }

// saveAfterAcks is the number of acknowledgements after which the checkpoint
// is saved before Policy.SaveInterval has passed.
const saveAfterAcks = 1000

// newRun returns a run of a consumer that publishes to a target.
func newRun(d *Relay, job Job, to message.Publisher, c Consumer) *run {
	r := &run{relay: d, job: job, policy: job.Policy.withDefaults(), to: to, seed: maphash.MakeSeed()}
	if borrowed, ok := to.(borrowedTarget); ok {
		to = borrowed.Target
	}
	r.batcher, _ = to.(Batcher)
	r.agents = agentCache{store: d.store, agents: map[string]string{}}
	r.recordSlots = semaphore.NewWeighted(int64(r.policy.InFlight))
	r.byteSlots = semaphore.NewWeighted(int64(r.policy.Bytes))
	r.saveSoon, r.retrySoon = make(chan struct{}, 1), make(chan struct{}, 1)
	for range r.policy.Workers {
		r.queues = append(r.queues, make(chan outgoing, r.policy.InFlight)) // never full: places are fewer
	}
	r.mu.consumer, r.mu.window.watermark = c, c.Position
	return r
}

// An openFunc opens the target for a consumer that has reached position at.
type openFunc func(ctx context.Context, at events.Position) (Target, error)

// alreadyOpen returns an openFunc for an open target, which the caller closes.
func alreadyOpen(to Target) openFunc {
	return func(context.Context, events.Position) (Target, error) { return borrowedTarget{to}, nil }
}

// A borrowedTarget is a target that the run must not close.
type borrowedTarget struct{ Target }

// Close does nothing.
func (borrowedTarget) Close() error { return nil }

// run locks the consumer, opens the target, creates the consumer if there is
// none, and publishes the records that feed accepts until feed returns and all
// accepted records are finished.
func (d *Relay) run(ctx context.Context, job Job, open openFunc, feed feedFunc) (err error) {
	if err := job.valid(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("publish as %s: %w", job.Name, err)
		}
	}()
	lock, err := d.lockConsumer(job.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	c, err := d.load(ctx, job.Name)
	isNew := errors.Is(err, ErrNoConsumer)
	if err == nil {
		err = c.checkJob(job)
	}
	if err != nil && !isNew {
		return err
	}
	to, err := open(ctx, c.Position)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if isNew {
		if c, err = d.createConsumer(ctx, job); err != nil {
			return err
		}
	}
	return d.register(job, to, c).execute(ctx, feed)
}

// register starts the run of a consumer and makes it visible to Consumer and
// Retry.
func (d *Relay) register(job Job, to Target, c Consumer) *run {
	c.Running = true
	r := newRun(d, job, to, c)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.running[job.Name] = r
	return r
}

// unregister removes the run of a consumer.
func (d *Relay) unregister(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.running, name)
}

// A feedFunc passes the records after a position to r.
type feedFunc func(ctx context.Context, r *run, after events.Position) error

// execute runs the goroutines of r from beginning to end. It saves the
// consumer last, whatever ended the run.
func (r *run) execute(parent context.Context, feed feedFunc) (err error) {
	defer r.relay.unregister(r.job.Name)
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	var workers, background sync.WaitGroup
	saving, stopSaving := context.WithCancel(ctx)
	defer stopSaving()
	if err = r.takeRetryRequest(ctx); err == nil {
		background.Go(func() { r.saveLoop(saving, stop) })
		err = r.retryDeadLetters(ctx)
	}
	if err == nil {
		background.Go(func() { r.retryLoop(saving, stop) })
		for _, queue := range r.queues {
			workers.Go(func() {
				if err := r.runWorker(ctx, queue); err != nil {
					stop(err)
				}
			})
		}
		if err = feed(ctx, r, r.snapshot().Position); err != nil {
			stop(err)
		}
		for _, queue := range r.queues {
			close(queue)
		}
	}
	workers.Wait()
	stopSaving()
	background.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	// Save the acknowledgements, whatever ended the run.
	if saved := r.save(context.WithoutCancel(ctx)); err == nil {
		err = saved
	}
	return err
}

// snapshot returns a copy of the consumer.
func (r *run) snapshot() Consumer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.consumer.copy()
}

// accept puts a record into the queue of its stream once the record is durable
// and there is room in flight, or skips it if the filter does not select it.
func (r *run) accept(ctx context.Context, e events.Entry) error {
	p := outgoing{entry: e, attrs: attributesOf(e)}
	r.agents.add(e, p.attrs.session)
	var err error
	if p.attrs.agent, err = r.agents.agentOf(ctx, p.attrs.session); err != nil {
		return err
	}
	if !r.job.Filter.accepts(p.attrs) {
		r.skip(e.Position)
		return nil
	}
	if err := r.awaitDurable(ctx, e.Position); err != nil {
		return err
	}
	if err := r.acquireSlots(ctx, p); err != nil {
		return err
	}
	p.topic = r.job.Topic.of(p.attrs)
	r.mu.Lock()
	p.slot = r.mu.window.begin(e.Position)
	r.mu.Unlock()
	r.queues[maphash.String(r.seed, string(e.Stream))%uint64(len(r.queues))] <- p
	return nil
}

// awaitDurable waits until the store has synced the log through a position.
// Without it, a power cut could reuse the position of a published record.
func (r *run) awaitDurable(ctx context.Context, at events.Position) error {
	store, ok := r.relay.store.(interface {
		Durable() events.Position
		Sync(ctx context.Context) error
	})
	if !ok || at.Compare(store.Durable()) <= 0 {
		return nil
	}
	return store.Sync(ctx)
}

// acquireSlots waits until there is room in flight for a record.
func (r *run) acquireSlots(ctx context.Context, p outgoing) error {
	if r.recordSlots.Acquire(ctx, 1) != nil || r.byteSlots.Acquire(ctx, r.weight(p)) != nil {
		return context.Cause(ctx) // after which nothing is taken any more
	}
	return nil
}

// weight returns the bytes that a record occupies in flight, at most
// Policy.Bytes.
func (r *run) weight(p outgoing) int64 { return int64(min(p.size(), r.policy.Bytes)) }

// skip records that the log has nothing to publish up to a position, after the
// accepted records.
func (r *run) skip(at events.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.window.pass(at)
	if r.mu.consumer.Position != r.mu.window.watermark {
		r.mu.unsaved++
	}
	r.advanceLocked()
}

// ack removes acknowledged records from the window and from the dead letters.
func (r *run) ack(done []outgoing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.consecutive = 0
	r.mu.consumer.Published += uint64(len(done))
	for _, p := range done {
		// One that was set aside may come again, from an older checkpoint.
		r.mu.consumer.DeadLetters = slices.DeleteFunc(r.mu.consumer.DeadLetters, func(q DeadLetter) bool { return q.is(p.entry) })
		r.releaseLocked(p)
	}
	r.mu.unsaved += len(done)
	r.advanceLocked()
}

// releaseLocked removes a record from the window and frees its slots. A
// retried dead letter has none.
func (r *run) releaseLocked(p outgoing) {
	if p.slot == nil {
		return
	}
	r.mu.window.end(p.slot)
	r.recordSlots.Release(1)
	r.byteSlots.Release(r.weight(p))
}

// advanceLocked copies the watermark of the window into the consumer.
func (r *run) advanceLocked() {
	r.mu.consumer.Position = r.mu.window.watermark
	if r.mu.unsaved >= saveAfterAcks {
		signal(r.saveSoon)
	}
}

// deadLetter adds a record to the dead letters of the consumer. It returns an
// ErrTooManyDeadLetters, and leaves the record in flight, if a limit of the
// policy is reached.
func (r *run) deadLetter(p outgoing, tries int, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.mu.consumer
	letter := DeadLetter{
		Event: p.entry.ID, Kind: p.entry.Kind, Stream: p.entry.Stream, Revision: p.entry.Revision, Position: p.entry.Position,
		Tries: tries, LastError: r.recordErrorLocked(err),
	}
	at := slices.IndexFunc(c.DeadLetters, func(q DeadLetter) bool { return q.is(p.entry) })
	switch {
	case at >= 0:
		letter.Tries += c.DeadLetters[at].Tries
		c.DeadLetters[at] = letter
	case r.mu.consecutive >= r.policy.MaxConsecutive:
		return fmt.Errorf("%w: %d in a row, the last because: %w", ErrTooManyDeadLetters, r.mu.consecutive, err)
	case len(c.DeadLetters) >= r.policy.MaxDeadLetters:
		return fmt.Errorf("%w: %d are, the last because: %w", ErrTooManyDeadLetters, len(c.DeadLetters), err)
	default:
		r.mu.consecutive++
		c.DeadLetters = append(c.DeadLetters, letter)
	}
	r.releaseLocked(p)
	r.mu.unsaved++
	r.advanceLocked()
	signal(r.saveSoon)
	return nil
}

// recordErrorLocked saves an error as the last error of the consumer.
func (r *run) recordErrorLocked(err error) LastError {
	lastError := LastError{Text: truncated(err.Error()), Time: r.relay.now().UTC().Truncate(time.Microsecond)}
	r.mu.consumer.LastError = &lastError
	r.mu.unsaved++
	return lastError
}

// maxErrorText bounds the bytes of a saved error.
const maxErrorText = 500

// truncated returns at most maxErrorText bytes of a text.
func truncated(text string) string {
	if len(text) > maxErrorText {
		return text[:maxErrorText]
	}
	return text
}

// saveLoop saves the consumer every Policy.SaveInterval and after
// saveAfterAcks acknowledgements, and takes retry requests of other processes,
// until ctx ends. It calls stop with the first error.
func (r *run) saveLoop(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(r.policy.SaveInterval)
	defer tick.Stop()
	for {
		var requested error
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			requested = r.takeRetryRequest(ctx)
		case <-r.saveSoon:
		}
		if err := errors.Join(requested, r.save(ctx)); err != nil && ctx.Err() == nil {
			stop(err)
			return
		}
	}
}

// save saves the consumer if it has changed since the last save.
func (r *run) save(ctx context.Context) error {
	r.saveMu.Lock()
	defer r.saveMu.Unlock()
	r.mu.Lock()
	if r.mu.unsaved == 0 {
		r.mu.Unlock()
		return nil
	}
	r.mu.unsaved = 0
	r.mu.consumer.Saved = r.relay.now().UTC().Truncate(time.Microsecond)
	c := r.mu.consumer.copy()
	r.mu.Unlock()
	err := r.relay.save(ctx, c)
	if err != nil {
		r.mu.Lock()
		r.mu.unsaved++
		r.mu.Unlock()
	}
	return err
}

// signal sends to a channel of capacity one, unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
