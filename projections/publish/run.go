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
// each lane hands them over; one saves; one tries again what was set aside.
type run struct {
	desk    *Desk
	job     Job
	policy  Policy
	to      message.Publisher
	batcher Batcher // to, if it is one
	agents  agents
	lanes   []chan parcel
	seed    maphash.Seed
	places  *semaphore.Weighted // of records in flight
	bytes   *semaphore.Weighted // of these
	due     chan struct{}       // holds one: the checkpoint is to be saved soon
	again   chan struct{}       // holds one: something set aside is to be tried again

	saving sync.Mutex // held while the checkpoint is saved; taken before mu
	mu     struct {
		sync.Mutex
		consumer Consumer
		track    track
		unsaved  int // changes since the checkpoint
		row      int // records set aside since the last acknowledgement
	}
}

// A parcel is a record on its way.
type parcel struct {
	entry events.Entry
	of    particulars
	topic string
	step  *step // nil for one that was set aside before
}

func (p parcel) size() int { return len(p.entry.Data) + len(p.entry.Metadata) }

// often is how many acknowledgements make a checkpoint due before its time.
const often = 1000

func newRun(d *Desk, job Job, to message.Publisher, c Consumer) *run {
	r := &run{desk: d, job: job, policy: job.Policy.filled(), to: to, seed: maphash.MakeSeed()}
	if given, ok := to.(lent); ok {
		to = given.Target
	}
	r.batcher, _ = to.(Batcher)
	r.agents = agents{store: d.store, known: map[string]string{}}
	r.places = semaphore.NewWeighted(int64(r.policy.InFlight))
	r.bytes = semaphore.NewWeighted(int64(r.policy.Bytes))
	r.due, r.again = make(chan struct{}, 1), make(chan struct{}, 1)
	for range r.policy.Lanes {
		r.lanes = append(r.lanes, make(chan parcel, r.policy.InFlight)) // never full: places are fewer
	}
	r.mu.consumer, r.mu.track.mark = c, c.Position
	return r
}

// An opening opens the target of a consumer, which has come to a position.
type opening func(ctx context.Context, at events.Position) (Target, error)

// given is the opening of a target that is open, and that others close.
func given(to Target) opening {
	return func(context.Context, events.Position) (Target, error) { return lent{to}, nil }
}

// lent is a target that is not closed by who has it.
type lent struct{ Target }

// Close leaves the target open.
func (lent) Close() error { return nil }

// run publishes what read takes until read returns, and then what it took. It
// has the name of the consumer all the while.
func (d *Desk) run(ctx context.Context, job Job, open opening, read reader) (err error) {
	if err := job.valid(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("publish as %s: %w", job.Name, err)
		}
	}()
	held, err := d.hold(job.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	c, err := d.load(ctx, job.Name)
	fresh := errors.Is(err, ErrNoConsumer)
	if err == nil {
		err = c.does(job)
	}
	if err != nil && !fresh {
		return err
	}
	to, err := open(ctx, c.Position)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if fresh {
		if c, err = d.hire(ctx, job); err != nil {
			return err
		}
	}
	return d.begin(job, to, c).through(ctx, read)
}

// begin returns the run of a consumer, which others see until it ends.
func (d *Desk) begin(job Job, to Target, c Consumer) *run {
	c.Running = true
	r := newRun(d, job, to, c)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.running[job.Name] = r
	return r
}

func (d *Desk) end(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.running, name)
}

// A reader has r take the records behind a position.
type reader func(ctx context.Context, r *run, after events.Position) error

// through is r from its beginning to its end.
func (r *run) through(parent context.Context, read reader) (err error) {
	defer r.desk.end(r.job.Name)
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	var handing, keeping sync.WaitGroup
	keep, kept := context.WithCancel(ctx)
	defer kept()
	if err = r.grant(ctx); err == nil {
		keeping.Go(func() { r.keep(keep, stop) })
		err = r.redeliver(ctx)
	}
	if err == nil {
		keeping.Go(func() { r.retryAgain(keep, stop) })
		for _, lane := range r.lanes {
			handing.Go(func() {
				if err := r.work(ctx, lane); err != nil {
					stop(err)
				}
			})
		}
		if err = read(ctx, r, r.look().Position); err != nil {
			stop(err)
		}
		for _, lane := range r.lanes {
			close(lane)
		}
	}
	handing.Wait()
	kept()
	keeping.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	// What was acknowledged is worth keeping, whatever ended the run.
	if saved := r.save(context.WithoutCancel(ctx)); err == nil {
		err = saved
	}
	return err
}

// look returns the consumer as it is now.
func (r *run) look() Consumer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.consumer.copy()
}

// take puts a record on its way once there is room for it, or passes it over.
func (r *run) take(ctx context.Context, e events.Entry) error {
	p := parcel{entry: e, of: particularsOf(e)}
	r.agents.learn(e, p.of.session)
	var err error
	if p.of.agent, err = r.agents.of(ctx, p.of.session); err != nil {
		return err
	}
	if !r.job.Only.takes(p.of) {
		r.pass(e.Position)
		return nil
	}
	if err := r.firm(ctx, e.Position); err != nil {
		return err
	}
	if err := r.admit(ctx, p); err != nil {
		return err
	}
	p.topic = r.job.Topic.of(p.of)
	r.mu.Lock()
	p.step = r.mu.track.begin(e.Position)
	r.mu.Unlock()
	r.lanes[maphash.String(r.seed, string(e.Stream))%uint64(len(r.lanes))] <- p
	return nil
}

// firm returns when the log through a position is on the disk. A store that
// answers before could give the position to another record after a power cut.
func (r *run) firm(ctx context.Context, at events.Position) error {
	store, ok := r.desk.store.(interface {
		Durable() events.Position
		Sync(ctx context.Context) error
	})
	if !ok || at.Compare(store.Durable()) <= 0 {
		return nil
	}
	return store.Sync(ctx)
}

// admit waits until there is room in flight for a record.
func (r *run) admit(ctx context.Context, p parcel) error {
	if r.places.Acquire(ctx, 1) != nil || r.bytes.Acquire(ctx, r.weight(p)) != nil {
		return context.Cause(ctx) // after which nothing is taken any more
	}
	return nil
}

func (r *run) weight(p parcel) int64 { return int64(min(p.size(), r.policy.Bytes)) }

// pass says that there is nothing to publish through a position, behind what
// was taken.
func (r *run) pass(at events.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.track.pass(at)
	if r.mu.consumer.Position != r.mu.track.mark {
		r.mu.unsaved++
	}
	r.advanceLocked()
}

// acknowledged takes records out of flight that the target has.
func (r *run) acknowledged(done []parcel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.row = 0
	r.mu.consumer.Published += uint64(len(done))
	for _, p := range done {
		// One that was set aside may come again, from an older checkpoint.
		r.mu.consumer.Poison = slices.DeleteFunc(r.mu.consumer.Poison, func(q Poison) bool { return q.is(p.entry) })
		r.endLocked(p)
	}
	r.mu.unsaved += len(done)
	r.advanceLocked()
}

// endLocked takes a record out of flight, if it was in.
func (r *run) endLocked(p parcel) {
	if p.step == nil {
		return
	}
	r.mu.track.end(p.step)
	r.places.Release(1)
	r.bytes.Release(r.weight(p))
}

func (r *run) advanceLocked() {
	r.mu.consumer.Position = r.mu.track.mark
	if r.mu.unsaved >= often {
		wake(r.due)
	}
}

// setAside lists a record as poison, or says that there are too many and leaves
// it where it is.
func (r *run) setAside(p parcel, tries int, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.mu.consumer
	poison := Poison{
		Event: p.entry.ID, Kind: p.entry.Kind, Stream: p.entry.Stream, Revision: p.entry.Revision, Position: p.entry.Position,
		Tries: tries, Trouble: r.troubleLocked(err),
	}
	at := slices.IndexFunc(c.Poison, func(q Poison) bool { return q.is(p.entry) })
	switch {
	case at >= 0:
		poison.Tries += c.Poison[at].Tries
		c.Poison[at] = poison
	case r.mu.row >= r.policy.InARow:
		return fmt.Errorf("%w: %d in a row, the last because: %w", ErrPoisoned, r.mu.row, err)
	case len(c.Poison) >= r.policy.Poison:
		return fmt.Errorf("%w: %d are, the last because: %w", ErrPoisoned, len(c.Poison), err)
	default:
		r.mu.row++
		c.Poison = append(c.Poison, poison)
	}
	r.endLocked(p)
	r.mu.unsaved++
	r.advanceLocked()
	wake(r.due)
	return nil
}

// troubleLocked puts an error into the consumer and returns it as it is kept.
func (r *run) troubleLocked(err error) Trouble {
	trouble := Trouble{Text: clipped(err.Error()), Time: r.desk.now().UTC().Truncate(time.Microsecond)}
	r.mu.consumer.Trouble = &trouble
	r.mu.unsaved++
	return trouble
}

// mostText bounds the text of an error that is kept.
const mostText = 500

func clipped(text string) string {
	if len(text) > mostText {
		return text[:mostText]
	}
	return text
}

// keep saves the checkpoint from time to time, and takes up what others wish,
// until its context ends.
func (r *run) keep(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(r.policy.Save)
	defer tick.Stop()
	for {
		var granted error
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			granted = r.grant(ctx)
		case <-r.due:
		}
		if err := errors.Join(granted, r.save(ctx)); err != nil && ctx.Err() == nil {
			stop(err)
			return
		}
	}
}

// save saves the checkpoint if it has changed.
func (r *run) save(ctx context.Context) error {
	r.saving.Lock()
	defer r.saving.Unlock()
	r.mu.Lock()
	if r.mu.unsaved == 0 {
		r.mu.Unlock()
		return nil
	}
	r.mu.unsaved = 0
	r.mu.consumer.Saved = r.desk.now().UTC().Truncate(time.Microsecond)
	c := r.mu.consumer.copy()
	r.mu.Unlock()
	err := r.desk.save(ctx, c)
	if err != nil {
		r.mu.Lock()
		r.mu.unsaved++
		r.mu.Unlock()
	}
	return err
}

// wake puts a sign into a channel that holds one.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
