package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// The errors of a Relay. Callers match them with errors.Is.
var (
	// ErrBadName: the name of a consumer does not follow the rule of [ValidName].
	ErrBadName = errors.New("name of a consumer is not valid")
	// ErrNoConsumer: no consumer of this name was created, or it was forgotten.
	ErrNoConsumer = errors.New("no such consumer")
	// ErrRunning: a run, in this process or another, holds the lock of the consumer.
	ErrRunning = errors.New("consumer runs already")
	// ErrDifferentJob: the consumer was created for another target, topic or filter.
	ErrDifferentJob = errors.New("consumer publishes something else")
	// ErrDamaged: the saved document of a consumer, or the index, does not decode.
	ErrDamaged = errors.New("consumer is damaged")
	// ErrTooManyDeadLetters: the run reached a limit of its policy.
	ErrTooManyDeadLetters = errors.New("too many dead letters")
)

// A ConsumerStore stores consumers as named documents. Unlike the state of a
// projection, a consumer cannot be rebuilt from the log. It is safe for concurrent
// use.
type ConsumerStore interface {
	projections.Checkpoints
	// Sync returns when everything saved before is durable.
	Sync(ctx context.Context) error
}

// A Relay publishes the records of a store. It is safe for concurrent use. Several
// relays of one store, in this process and others, exclude each other with their
// Locker. A relay changes a consumer only under the lock of the consumer's document.
// It changes the index and a retry request only under locks of their own, which it
// holds for a short time.
type Relay struct {
	store     events.Store
	consumers ConsumerStore
	locks     Locker
	// now supplies the times in consumers, for tests.
	now func() time.Time
	mu  struct {
		sync.Mutex
		// running has the run of each consumer that runs on this Relay.
		running map[string]*relayRun
	}
}

// NewRelay returns a relay of a store. Relays with the same consumers must have
// Lockers that exclude each other. now is the clock, mostly time.Now.
func NewRelay(store events.Store, consumers ConsumerStore, locks Locker, now func() time.Time) *Relay {
	d := &Relay{store: store, consumers: consumers, locks: locks, now: now}
	d.mu.running = map[string]*relayRun{}
	return d
}

// indexName is the name of the index, which lists the names of all consumers as a
// sorted JSON array. It is also the prefix of all documents.
const indexName = "publish"

// documentName returns the name under which a consumer is saved and locked.
func documentName(consumer string) string { return indexName + "/" + consumer }

// Consumers returns all consumers, ordered by name. For a damaged consumer, the
// ConsumerState has only the name and, as the last error, an ErrDamaged.
func (d *Relay) Consumers(ctx context.Context) ([]ConsumerState, error) {
	all, err := d.consumerNames(ctx)
	if err != nil {
		return nil, err
	}
	consumers := make([]ConsumerState, 0, len(all))
	for _, name := range all {
		c, err := d.Consumer(ctx, name)
		switch {
		case errors.Is(err, ErrNoConsumer):
			continue // forgotten since the index was read
		case errors.Is(err, ErrDamaged):
			c = ConsumerState{Name: name, LastError: &LastError{Text: err.Error()}}
		case err != nil:
			return nil, err
		}
		consumers = append(consumers, c)
	}
	return consumers, nil
}

// Consumer returns the current state of a consumer that runs on this relay, and
// otherwise the saved state. The error is an ErrNoConsumer for an unknown name, and
// an ErrDamaged for a saved state that does not decode.
func (d *Relay) Consumer(ctx context.Context, name string) (ConsumerState, error) {
	if r := d.activeRun(name); r != nil {
		return r.snapshot(), nil
	}
	return d.load(ctx, name)
}

// activeRun returns the run of a consumer on this relay, or nil.
func (d *Relay) activeRun(name string) *relayRun {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.running[name]
}

// load returns the saved state of a consumer. The error is an ErrNoConsumer if the
// consumer was never saved, an ErrDamaged if its document does not decode, and an
// ErrBadName for an invalid name.
func (d *Relay) load(ctx context.Context, name string) (ConsumerState, error) {
	if err := ValidName(name); err != nil {
		return ConsumerState{}, err
	}
	data, err := d.consumers.LoadCheckpoint(ctx, documentName(name))
	switch {
	case err != nil:
		return ConsumerState{}, fmt.Errorf("load consumer %s: %w", name, err)
	case len(data) == 0:
		return ConsumerState{}, fmt.Errorf("%w: %s", ErrNoConsumer, name)
	}
	return decodeConsumer(name, data)
}

// save writes the state of a consumer without a sync. The state survives a kill of
// the process, but a power cut can lose it. The caller holds the lock of the
// consumer.
func (d *Relay) save(ctx context.Context, c ConsumerState) error {
	c.Format = consumerFormat
	data, err := projections.Encode(c)
	if err == nil {
		err = d.consumers.SaveCheckpoint(ctx, documentName(c.Name), data)
	}
	if err != nil {
		return fmt.Errorf("save consumer %s: %w", c.Name, err)
	}
	return nil
}

// lockConsumer locks a consumer, or returns an ErrRunning if a run holds the
// lock.
func (d *Relay) lockConsumer(name string) (io.Closer, error) {
	lock, err := d.locks.Lock(documentName(name))
	if errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("%w: %w", ErrRunning, err)
	}
	return lock, err
}

// The interval and number of the attempts of waitLock, which together take about ten
// seconds.
const (
	lockPollInterval = 5 * time.Millisecond
	lockPollAttempts = 2000
)

// waitLock acquires a lock that other processes hold for milliseconds at a time. It
// polls, because a Locker cannot wait. After lockPollAttempts attempts it returns the
// ErrLocked of the last one.
func (d *Relay) waitLock(ctx context.Context, name string) (io.Closer, error) {
	for try := 1; ; try++ {
		lock, err := d.locks.Lock(name)
		if !errors.Is(err, ErrLocked) || try == lockPollAttempts {
			return lock, err
		}
		if err := sleep(ctx, lockPollInterval); err != nil {
			return nil, err
		}
	}
}

// Forget removes a consumer, durably, so that its name can be used anew. It
// returns an ErrNoConsumer for an unknown name and an ErrRunning while a run,
// here or elsewhere, uses the consumer. It removes a damaged consumer too.
func (d *Relay) Forget(ctx context.Context, name string) (err error) {
	if err := ValidName(name); err != nil {
		return err
	}
	lock, err := d.lockConsumer(name)
	if err != nil {
		return fmt.Errorf("forget %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	all, err := d.consumerNames(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(all, name) {
		return fmt.Errorf("forget: %w: %s", ErrNoConsumer, name)
	}
	// Checkpoints cannot be removed: save them empty. The name is removed last,
	// so that a partly removed consumer stays listed.
	for _, document := range []string{retryRequestName(name), documentName(name)} {
		if err := d.consumers.SaveCheckpoint(ctx, document, nil); err != nil {
			return fmt.Errorf("forget %s: %w", name, err)
		}
	}
	if err := d.updateIndex(ctx, func(all []string) []string { return withoutName(all, name) }); err != nil {
		return err
	}
	return d.consumers.Sync(ctx)
}

// consumerNames returns the names of all consumers, sorted.
func (d *Relay) consumerNames(ctx context.Context) (all []string, err error) {
	data, err := d.consumers.LoadCheckpoint(ctx, indexName)
	if err == nil && len(data) > 0 {
		if err = json.Unmarshal(data, &all); err != nil {
			err = fmt.Errorf("%w: the list of consumers: %w", ErrDamaged, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	return all, nil
}

// updateIndex replaces the list of names by change's result, under the lock of the
// index. change receives the sorted list and may reuse it.
func (d *Relay) updateIndex(ctx context.Context, change func([]string) []string) (err error) {
	lock, err := d.waitLock(ctx, indexName)
	if err != nil {
		return fmt.Errorf("change the list of consumers: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	all, err := d.consumerNames(ctx)
	if err != nil {
		return err
	}
	data, err := projections.Encode(change(all))
	if err == nil {
		err = d.consumers.SaveCheckpoint(ctx, indexName, data)
	}
	if err != nil {
		return fmt.Errorf("save the list of consumers: %w", err)
	}
	return nil
}

// withName returns a sorted list with the name inserted, or the same list if it has
// the name.
func withName(all []string, name string) []string {
	at, found := slices.BinarySearch(all, name)
	if found {
		return all
	}
	return slices.Insert(all, at, name)
}

// withoutName returns a sorted list with the name removed, if the list has it.
func withoutName(all []string, name string) []string {
	at, found := slices.BinarySearch(all, name)
	if !found {
		return all
	}
	return slices.Delete(all, at, at+1)
}
