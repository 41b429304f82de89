package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// The errors of a Desk. Callers match them with errors.Is.
var (
	ErrBadName    = errors.New("name of a consumer is not valid")
	ErrNoConsumer = errors.New("no such consumer")
	ErrRunning    = errors.New("consumer runs already")
	ErrOther      = errors.New("consumer publishes something else")
	ErrDamaged    = errors.New("consumer is damaged")
	ErrPoisoned   = errors.New("too many records were set aside")
)

// A Desk publishes the records of a store and keeps its consumers beside it.
// It is safe for concurrent use. There is one for a store at a time.
type Desk struct {
	store events.Store
	kept  projections.Checkpoints
	now   func() time.Time
	mu    struct {
		sync.Mutex // held while the list of names is read and written, too
		running    map[string]*run
	}
}

// NewDesk returns the desk of a store, with the checkpoints beside it.
func NewDesk(store events.Store, kept projections.Checkpoints, now func() time.Time) *Desk {
	d := &Desk{store: store, kept: kept, now: now}
	d.mu.running = map[string]*run{}
	return d
}

// indexName is the name under which the names of all consumers are kept, as a
// JSON array.
const indexName = "publish"

func documentName(consumer string) string { return indexName + "/" + consumer }

// Consumers returns all consumers, by name. One that is damaged has its name
// and, as its trouble, why.
func (d *Desk) Consumers(ctx context.Context) ([]Consumer, error) {
	d.mu.Lock()
	all, err := d.namesLocked(ctx)
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	consumers := make([]Consumer, 0, len(all))
	for _, name := range all {
		c, err := d.Consumer(ctx, name)
		switch {
		case errors.Is(err, ErrNoConsumer):
			continue // forgotten meanwhile
		case errors.Is(err, ErrDamaged):
			c = Consumer{Name: name, Trouble: &Trouble{Text: err.Error()}}
		case err != nil:
			return nil, err
		}
		consumers = append(consumers, c)
	}
	return consumers, nil
}

// Consumer returns one consumer, as it is if it runs and else as it was kept.
// Where there is none it is ErrNoConsumer, and one that does not decode is
// ErrDamaged.
func (d *Desk) Consumer(ctx context.Context, name string) (Consumer, error) {
	if r := d.runs(name); r != nil {
		return r.look(), nil
	}
	return d.load(ctx, name)
}

func (d *Desk) runs(name string) *run {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.running[name]
}

func (d *Desk) load(ctx context.Context, name string) (Consumer, error) {
	if err := ValidName(name); err != nil {
		return Consumer{}, err
	}
	data, err := d.kept.LoadCheckpoint(ctx, documentName(name))
	switch {
	case err != nil:
		return Consumer{}, fmt.Errorf("load consumer %s: %w", name, err)
	case len(data) == 0:
		return Consumer{}, fmt.Errorf("%w: %s", ErrNoConsumer, name)
	}
	return decodeConsumer(name, data)
}

func (d *Desk) save(ctx context.Context, c Consumer) error {
	c.Format = consumerFormat
	data, err := projections.Encode(c)
	if err == nil {
		err = d.kept.SaveCheckpoint(ctx, documentName(c.Name), data)
	}
	if err != nil {
		return fmt.Errorf("save consumer %s: %w", c.Name, err)
	}
	return nil
}

// Forget removes a consumer: its name may then begin anew. It is ErrNoConsumer
// where there is none and ErrRunning while it runs. One that is damaged is
// removed.
func (d *Desk) Forget(ctx context.Context, name string) error {
	if err := ValidName(name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.running[name] != nil {
		return fmt.Errorf("forget %s: %w", name, ErrRunning)
	}
	all, err := d.namesLocked(ctx)
	if err != nil {
		return err
	}
	at, found := slices.BinarySearch(all, name)
	if !found {
		return fmt.Errorf("forget: %w: %s", ErrNoConsumer, name)
	}
	// Nothing is kept as nothing: checkpoints cannot be removed. The name goes
	// last, so that what is left of a consumer is always listed.
	if err := d.kept.SaveCheckpoint(ctx, documentName(name), nil); err != nil {
		return fmt.Errorf("forget %s: %w", name, err)
	}
	return d.keepLocked(ctx, slices.Delete(all, at, at+1))
}

// Retry has records that were set aside tried again: those at these positions,
// or without any all of them. A consumer that runs tries them at once, another
// when it runs next. It returns how many there are, and ErrNoConsumer where
// there is no such consumer.
func (d *Desk) Retry(ctx context.Context, name string, positions ...events.Position) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.mu.running[name]; r != nil {
		return r.retry(positions), nil
	}
	c, err := d.load(ctx, name)
	if err != nil {
		return 0, err
	}
	n := c.retry(positions)
	return n, d.save(ctx, c)
}

func (c *Consumer) retry(positions []events.Position) (n int) {
	for i, p := range c.Poison {
		if len(positions) == 0 || slices.Contains(positions, p.Position) {
			c.Poison[i].Again = true
			n++
		}
	}
	return n
}

// A Lag says how far a consumer is behind the end of the log. Where a consumer
// asks for some tools or agents, records are counted that it would pass over.
type Lag struct {
	Records uint64
	Oldest  time.Time // when the first of them happened; zero if there is none
}

// Behind returns how long the first record of l waits.
func (l Lag) Behind(now time.Time) time.Duration {
	if l.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.Oldest))
}

// Lag counts the records between a consumer and the end of the log. What was
// set aside is not among them.
func (d *Desk) Lag(ctx context.Context, c Consumer) (Lag, error) {
	l := Lag{}
	for h, err := range events.Headers(ctx, d.store, events.Query{Filter: c.Only.filter(), After: c.Position}) {
		if err != nil {
			return Lag{}, fmt.Errorf("count what %s has before it: %w", c.Name, err)
		}
		if l.Records++; l.Records == 1 {
			l.Oldest = h.Time
		}
	}
	return l, nil
}

// namesLocked returns the names of all consumers, in order.
func (d *Desk) namesLocked(ctx context.Context) (all []string, err error) {
	data, err := d.kept.LoadCheckpoint(ctx, indexName)
	if err == nil && len(data) > 0 {
		if err = json.Unmarshal(data, &all); err != nil {
			err = fmt.Errorf("%w: their list: %w", ErrDamaged, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	return all, nil
}

func (d *Desk) keepLocked(ctx context.Context, all []string) error {
	data, err := projections.Encode(all)
	if err == nil {
		err = d.kept.SaveCheckpoint(ctx, indexName, data)
	}
	if err != nil {
		return fmt.Errorf("save the list of consumers: %w", err)
	}
	return nil
}

// with returns a sorted list of names with one more.
func with(all []string, name string) []string {
	at, found := slices.BinarySearch(all, name)
	if found {
		return all
	}
	return slices.Insert(all, at, name)
}
