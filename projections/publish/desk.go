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

// The errors of a Desk. Callers match them with errors.Is.
var (
	ErrBadName    = errors.New("name of a consumer is not valid")
	ErrNoConsumer = errors.New("no such consumer")
	ErrRunning    = errors.New("consumer runs already")
	ErrOther      = errors.New("consumer publishes something else")
	ErrDamaged    = errors.New("consumer is damaged")
	ErrPoisoned   = errors.New("too many records were set aside")
)

// Kept is where consumers are kept, beside the store. Unlike the answer of a
// projection, a consumer cannot be had from the log again.
type Kept interface {
	projections.Checkpoints
	// Sync returns nil when all that was saved before is durable.
	Sync(ctx context.Context) error
}

// A Desk publishes the records of a store and keeps its consumers beside it.
// It is safe for concurrent use. Several for one store, in this process and
// others, keep apart by their claims.
type Desk struct {
	store  events.Store
	kept   Kept
	claims Claims
	now    func() time.Time
	mu     struct {
		sync.Mutex
		running map[string]*run
	}
}

// NewDesk returns the desk of a store, with what is kept beside it. The claims
// are those of all who have the same consumers.
func NewDesk(store events.Store, kept Kept, claims Claims, now func() time.Time) *Desk {
	d := &Desk{store: store, kept: kept, claims: claims, now: now}
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
	all, err := d.names(ctx)
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

// hold takes the name of a consumer. Where it runs, here or elsewhere, that is
// an ErrRunning.
func (d *Desk) hold(name string) (io.Closer, error) {
	held, err := d.claims.Claim(documentName(name))
	if errors.Is(err, ErrClaimed) {
		return nil, fmt.Errorf("%w: %w", ErrRunning, err)
	}
	return held, err
}

// The patience with who has a turn, which takes moments.
const (
	turnPause = 5 * time.Millisecond
	turnTries = 2000
)

// turn takes a name that others have for moments.
func (d *Desk) turn(ctx context.Context, name string) (io.Closer, error) {
	for try := 1; ; try++ {
		held, err := d.claims.Claim(name)
		if !errors.Is(err, ErrClaimed) || try == turnTries {
			return held, err
		}
		if err := pause(ctx, turnPause); err != nil {
			return nil, err
		}
	}
}

// Forget removes a consumer, durably: its name may then begin anew. It is
// ErrNoConsumer where there is none and ErrRunning while it runs, here or
// elsewhere. One that is damaged is removed.
func (d *Desk) Forget(ctx context.Context, name string) (err error) {
	if err := ValidName(name); err != nil {
		return err
	}
	held, err := d.hold(name)
	if err != nil {
		return fmt.Errorf("forget %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	all, err := d.names(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(all, name) {
		return fmt.Errorf("forget: %w: %s", ErrNoConsumer, name)
	}
	// Nothing is kept as nothing: checkpoints cannot be removed. The name goes
	// last, so that what is left of a consumer is always listed.
	for _, document := range []string{wishName(name), documentName(name)} {
		if err := d.kept.SaveCheckpoint(ctx, document, nil); err != nil {
			return fmt.Errorf("forget %s: %w", name, err)
		}
	}
	if err := d.enlist(ctx, func(all []string) []string { return without(all, name) }); err != nil {
		return err
	}
	return d.kept.Sync(ctx)
}

// names returns the names of all consumers, in order.
func (d *Desk) names(ctx context.Context) (all []string, err error) {
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

// enlist changes the list of names, in turn with others.
func (d *Desk) enlist(ctx context.Context, change func([]string) []string) (err error) {
	held, err := d.turn(ctx, indexName)
	if err != nil {
		return fmt.Errorf("change the list of consumers: %w", err)
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	all, err := d.names(ctx)
	if err != nil {
		return err
	}
	data, err := projections.Encode(change(all))
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

// without returns a sorted list of names with one less.
func without(all []string, name string) []string {
	at, found := slices.BinarySearch(all, name)
	if !found {
		return all
	}
	return slices.Delete(all, at, at+1)
}
