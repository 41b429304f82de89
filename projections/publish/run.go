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

// A run is one publication while it lasts. One goroutine reads the log and puts
// records into lanes, each record of a stream into the same; one goroutine for
// each queue hands them over; one saves; one tries again what was set aside.
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

// A outgoing is a record on its way.
type outgoing struct {
	entry events.Entry
	attrs attributes
	topic string
	slot  *windowSlot // nil for one that was set aside before
}

func (p outgoing) size() int { return len(p.entry.Data) + len(p.entry.Metadata) }

// saveAfterAcks is how many acknowledgements make a checkpoint due before its time.
const saveAfterAcks = 1000

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

// An openFunc opens the target of a consumer, which has come to a position.
type openFunc func(ctx context.Context, at events.Position) (Target, error)

// alreadyOpen is the openFunc of a target that is open, and that others close.
func alreadyOpen(to Target) openFunc {
	return func(context.Context, events.Position) (Target, error) { return borrowedTarget{to}, nil }
}

// borrowedTarget is a target that is not closed by who has it.
type borrowedTarget struct{ Target }

// Close leaves the target open.
func (borrowedTarget) Close() error { return nil }

// run publishes what read takes until read returns, and then what it took. It
// has the name of the consumer all the while.
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

// register returns the run of a consumer, which others see until it ends.
func (d *Relay) register(job Job, to Target, c Consumer) *run {
	c.Running = true
	r := newRun(d, job, to, c)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.running[job.Name] = r
	return r
}

func (d *Relay) unregister(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.running, name)
}

// A feedFunc has r take the records behind a position.
type feedFunc func(ctx context.Context, r *run, after events.Position) error

// execute is r from its beginning to its end.
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
	// What was acknowledged is worth keeping, whatever ended the run.
	if saved := r.save(context.WithoutCancel(ctx)); err == nil {
		err = saved
	}
	return err
}

// snapshot returns the consumer as it is now.
func (r *run) snapshot() Consumer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.consumer.copy()
}

// accept puts a record on its way once there is room for it, or passes it over.
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

// awaitDurable returns when the log through a position is on the disk. A store that
// answers before could give the position to another record after a power cut.
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

// acquireSlots delays until there is room in flight for a record.
func (r *run) acquireSlots(ctx context.Context, p outgoing) error {
	if r.recordSlots.Acquire(ctx, 1) != nil || r.byteSlots.Acquire(ctx, r.weight(p)) != nil {
		return context.Cause(ctx) // after which nothing is taken any more
	}
	return nil
}

func (r *run) weight(p outgoing) int64 { return int64(min(p.size(), r.policy.Bytes)) }

// skip says that there is nothing to publish through a position, behind what
// was taken.
func (r *run) skip(at events.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.window.pass(at)
	if r.mu.consumer.Position != r.mu.window.watermark {
		r.mu.unsaved++
	}
	r.advanceLocked()
}

// ack takes records out of flight that the target has.
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

// releaseLocked takes a record out of flight, if it was in.
func (r *run) releaseLocked(p outgoing) {
	if p.slot == nil {
		return
	}
	r.mu.window.end(p.slot)
	r.recordSlots.Release(1)
	r.byteSlots.Release(r.weight(p))
}

func (r *run) advanceLocked() {
	r.mu.consumer.Position = r.mu.window.watermark
	if r.mu.unsaved >= saveAfterAcks {
		signal(r.saveSoon)
	}
}

// deadLetter lists a record as letter, or says that there are too many and leaves
// it where it is.
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

// recordErrorLocked puts an error into the consumer and returns it as it is kept.
func (r *run) recordErrorLocked(err error) LastError {
	lastError := LastError{Text: truncated(err.Error()), Time: r.relay.now().UTC().Truncate(time.Microsecond)}
	r.mu.consumer.LastError = &lastError
	r.mu.unsaved++
	return lastError
}

// maxErrorText bounds the text of an error that is kept.
const maxErrorText = 500

func truncated(text string) string {
	if len(text) > maxErrorText {
		return text[:maxErrorText]
	}
	return text
}

// saveLoop saves the checkpoint from time to time, and takes up what others wish,
// until its context ends.
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

// save saves the checkpoint if it has changed.
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

// signal puts a sign into a channel that holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
