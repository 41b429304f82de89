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

// A relayRun is a publication in progress. Its goroutines:
//
//   - The feed, on the caller's goroutine, reads the log in order. For each record that
//     the filter selects, accept waits until the record is durable, acquires slots for
//     it, adds it to the ack window and sends it to the queue of its stream.
//   - One worker per queue collects batches and publishes each until the target
//     acknowledges it or its records are dead letters. Then the records leave the
//     window and their slots are free.
//   - saveLoop saves the consumer and takes the retry requests of other processes.
//   - retryLoop publishes the dead letters that are to be retried.
//
// Invariants: The records of a stream are in one queue and leave it in order. The
// number and bytes of records in flight never exceed the policy, so a queue always
// has room. The position of the consumer is the watermark of the window, and so
// precedes every unfinished record. The first error of any goroutine ends the run by
// cancelling its context.
type relayRun struct {
	relay  *Relay
	job    Job
	policy Policy
	to     message.Publisher
	// batcher is the target if that is a Batcher, and otherwise nil.
	batcher Batcher
	// agents is used by the feed alone.
	agents agentCache
	// queues have one worker each. A record goes to the queue that the hash of its
	// stream selects; seed differs in each run.
	queues []chan outgoing
	seed   maphash.Seed
	// recordSlots and byteSlots bound the records in flight and their bytes.
	recordSlots *semaphore.Weighted
	byteSlots   *semaphore.Weighted
	// saveSoon wakes saveLoop before its interval has passed. Capacity one.
	saveSoon chan struct{}
	// retrySoon wakes retryLoop. Capacity one.
	retrySoon chan struct{}

	// saveMu is held while the consumer is saved, so that an older copy never
	// replaces a newer one. It is locked before mu.
	saveMu sync.Mutex
	// mu guards the state that workers, loops and callers of the Relay share.
	mu struct {
		sync.Mutex
		consumer ConsumerState
		window   ackWindow
		// unsaved counts the changes of the consumer since it was saved.
		unsaved int
		// consecutive counts the dead letters since the last acknowledgement.
		consecutive int
	}
}

// An outgoing is a record on its way from the log to the target.
type outgoing struct {
	entry events.Entry
	attrs attributes
	topic string
	// slot is the place of the record in the ack window. It is nil for a retried dead
	// letter, which is not in the window and occupies no slots.
	slot *windowSlot
}

// size returns the bytes of the record that Policy.Bytes counts.
func (p outgoing) size() int { return len(p.entry.Data) + len(p.entry.Metadata) }

// saveAfterAcks is the number of acknowledgements after which saveLoop saves the
// consumer before Policy.SaveInterval has passed.
const saveAfterAcks = 1000

// newRun returns a run of a consumer that publishes to a target. It starts no
// goroutine.
func newRun(d *Relay, job Job, to message.Publisher, c ConsumerState) *relayRun {
	r := &relayRun{relay: d, job: job, policy: job.Policy.withDefaults(), to: to, seed: maphash.MakeSeed()}
	if borrowed, ok := to.(borrowedTarget); ok {
		to = borrowed.Target
	}
	r.batcher, _ = to.(Batcher)
	r.agents = agentCache{store: d.store, agents: map[string]string{}}
	r.recordSlots = semaphore.NewWeighted(int64(r.policy.InFlight))
	r.byteSlots = semaphore.NewWeighted(int64(r.policy.Bytes))
	r.saveSoon, r.retrySoon = make(chan struct{}, 1), make(chan struct{}, 1)
	for range r.policy.Workers {
		// The capacity is the number of record slots, so that accept never blocks
		// here.
		r.queues = append(r.queues, make(chan outgoing, r.policy.InFlight))
	}
	r.mu.consumer, r.mu.window.watermark = c, c.Position
	return r
}

// An openFunc opens the target for a consumer. The argument at is the position of the
// consumer, which is zero for a new consumer. The run closes the target.
type openFunc func(ctx context.Context, at events.Position) (Target, error)

// alreadyOpen returns an openFunc for an open target, which the caller closes.
func alreadyOpen(to Target) openFunc {
	return func(context.Context, events.Position) (Target, error) { return borrowedTarget{to}, nil }
}

// A borrowedTarget is a target that the run must not close.
type borrowedTarget struct{ Target }

// Close leaves the target open.
func (borrowedTarget) Close() error { return nil }

// run locks the consumer, loads it, opens the target, and creates the consumer if it
// does not exist. It then publishes the records that feed passes to accept, and
// returns when feed has returned and each accepted record is acknowledged or a dead
// letter. It closes the target before it unlocks the consumer. If the target does not
// open, run creates no consumer.
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

// register returns a new run of a consumer and adds it to running, where Consumer and
// Retry find it.
func (d *Relay) register(job Job, to Target, c ConsumerState) *relayRun {
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

// A feedFunc passes the records after a position to r.accept in log order. It returns
// when it has passed the last record or ctx ends.
type feedFunc func(ctx context.Context, r *relayRun, after events.Position) error

// execute runs the goroutines of r and returns when all have ended. It retries the
// requested dead letters before it reads the log. At the end it closes the queues,
// waits for the workers, then stops the loops. It always saves the consumer last. It
// returns the first error of any goroutine, or the cause of parent.
func (r *relayRun) execute(parent context.Context, feed feedFunc) (err error) {
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
	// The acknowledgements are valid also after an error.
	if saved := r.save(context.WithoutCancel(ctx)); err == nil {
		err = saved
	}
	return err
}

// snapshot returns a copy of the consumer.
func (r *relayRun) snapshot() ConsumerState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.consumer.copy()
}

// accept puts a record into the queue of its stream, or skips it if the filter does
// not select it. It blocks until the record is durable and slots are free. One
// goroutine calls accept, in log order.
func (r *relayRun) accept(ctx context.Context, e events.Entry) error {
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

// awaitDurable returns when the store has synced the log through a position.
// Otherwise a power cut could remove a published record, and the store could give its
// position to another record. A store without a method Durable returns only durable
// records, so awaitDurable does not wait.
func (r *relayRun) awaitDurable(ctx context.Context, at events.Position) error {
	store, ok := r.relay.store.(interface {
		Durable() events.Position
		Sync(ctx context.Context) error
	})
	if !ok || at.Compare(store.Durable()) <= 0 {
		return nil
	}
	return store.Sync(ctx)
}

// acquireSlots waits for the slots of a record and acquires them. If ctx ends first,
// acquireSlots returns the cause of ctx. It does not free the slots acquired so far,
// because the run then ends.
func (r *relayRun) acquireSlots(ctx context.Context, p outgoing) error {
	if r.recordSlots.Acquire(ctx, 1) != nil || r.byteSlots.Acquire(ctx, r.weight(p)) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// weight returns the number of byte slots that a record occupies: its size, but at
// most Policy.Bytes.
func (r *relayRun) weight(p outgoing) int64 { return int64(min(p.size(), r.policy.Bytes)) }

// skip records that the log has no record to publish between the last accepted record
// and a position. The consumer moves to that position once all records before it are
// finished.
func (r *relayRun) skip(at events.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.window.pass(at)
	if r.mu.consumer.Position != r.mu.window.watermark {
		r.mu.unsaved++
	}
	r.advanceLocked()
}

// ack records that the target acknowledged the records in done. It removes them from
// the window and from the dead letters of the consumer, and moves the position of the
// consumer to the watermark of the window.
func (r *relayRun) ack(done []outgoing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.consecutive = 0
	r.mu.consumer.Published += uint64(len(done))
	for _, p := range done {
		// A dead letter can also arrive from the log, after a restart from an older
		// checkpoint.
		r.mu.consumer.DeadLetters = slices.DeleteFunc(r.mu.consumer.DeadLetters, func(q DeadLetter) bool { return q.is(p.entry) })
		r.releaseLocked(p)
	}
	r.mu.unsaved += len(done)
	r.advanceLocked()
}

// releaseLocked removes a record from the window and frees its slots. It does nothing
// for a retried dead letter, which is not in the window and has no slots. The caller
// holds mu.
func (r *relayRun) releaseLocked(p outgoing) {
	if p.slot == nil {
		return
	}
	r.mu.window.end(p.slot)
	r.recordSlots.Release(1)
	r.byteSlots.Release(r.weight(p))
}

// advanceLocked sets the position of the consumer to the watermark of the window. It
// wakes saveLoop if at least saveAfterAcks changes are unsaved. The caller holds mu.
func (r *relayRun) advanceLocked() {
	r.mu.consumer.Position = r.mu.window.watermark
	if r.mu.unsaved >= saveAfterAcks {
		signal(r.saveSoon)
	}
}

// recordErrorLocked stores err, with the present time, as the last error of the
// consumer and returns it as a LastError. The caller holds mu.
func (r *relayRun) recordErrorLocked(err error) LastError {
	lastError := LastError{Text: truncated(err.Error()), Time: r.relay.now().UTC().Truncate(time.Microsecond)}
	r.mu.consumer.LastError = &lastError
	r.mu.unsaved++
	return lastError
}

// maxErrorText bounds the bytes of a saved error.
const maxErrorText = 500

// truncated returns the first maxErrorText bytes of a text, which may end within a
// character.
func truncated(text string) string {
	if len(text) > maxErrorText {
		return text[:maxErrorText]
	}
	return text
}

// saveLoop saves the consumer every Policy.SaveInterval and whenever saveSoon
// signals, until ctx ends. At each interval it also takes the retry requests of other
// processes. It calls stop with the first error and returns.
func (r *relayRun) saveLoop(ctx context.Context, stop context.CancelCauseFunc) {
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

// save saves the consumer if it has unsaved changes. It holds saveMu throughout, and
// mu only while it copies the consumer. If saving fails, the consumer counts as
// changed, so that the next save tries again.
func (r *relayRun) save(ctx context.Context) error {
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

// signal wakes the receiver of a channel of capacity one. It never blocks; two
// signals before a receive wake it once.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
