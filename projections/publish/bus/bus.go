package bus

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// The errors of a Bus. Callers match them with errors.Is.
var (
	ErrBadTopic   = errors.New("name of a topic is not valid")
	ErrBadGroup   = errors.New("name of a group is not valid")
	ErrBadMessage = errors.New("message is not valid")
	ErrClosed     = errors.New("end of the bus is closed")
)

// Category is the category of topic streams.
const Category = "topic"

// A Config configures a Bus. Failed may be nil, and Redelivery zero.
type Config struct {
	Store       events.Store
	Checkpoints projections.Checkpoints // the offsets of the groups
	Mint        *domain.Mint
	Now         func() time.Time
	Failed      func(group, topic string, err error) // receives the error that ended a subscription
	Redelivery  Redelivery
}

// A Bus is a broker over a store. The owner of the store closes it after all
// Publishers and Subscribers of the Bus.
type Bus struct {
	config Config
	mu     struct {
		sync.Mutex
		topics map[events.Stream]*topic
		groups map[string]*group // by the name of their checkpoint
	}
}

// New returns a broker over a store.
func New(cfg Config) *Bus {
	cfg.Redelivery = cfg.Redelivery.withDefaults()
	b := &Bus{config: cfg}
	b.mu.topics, b.mu.groups = map[events.Stream]*topic{}, map[string]*group{}
	return b
}

// streamOf returns the stream of a topic, or an ErrBadTopic.
func streamOf(topic string) (events.Stream, error) {
	switch {
	case topic == "", len(topic) > 500, !utf8.ValidString(topic), strings.ContainsFunc(topic, unicode.IsControl):
		return "", fmt.Errorf("%w: %q: it is text of 1 to 500 bytes, without control characters", ErrBadTopic, topic)
	}
	return events.Stream(Category + "-" + topic), nil
}

// groupNames matches the names of groups.
var groupNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// A topic caches the length of a stream to which this process appends.
type topic struct {
	mu struct {
		sync.Mutex // held while it is appended to
		length     events.Revision
		known      bool // that is the length, or was
	}
}

// topic returns the cached length of a stream.
func (b *Bus) topic(s events.Stream) *topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.mu.topics[s]
	if t == nil {
		t = &topic{}
		b.mu.topics[s] = t
	}
	return t
}

// append appends records at the end of a stream. It retries after a conflict
// with another writer.
func (b *Bus) append(ctx context.Context, s events.Stream, records []events.Record) error {
	t := b.topic(s)
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if err := t.loadLengthLocked(ctx, b.config.Store, s); err != nil {
			return err
		}
		err := b.config.Store.Append(ctx, s, t.mu.length, records...)
		if err == nil {
			t.mu.length += events.Revision(len(records))
			return nil
		}
		if t.mu.known = false; !errors.Is(err, events.ErrConflict) {
			return err
		}
	}
}

// loadLengthLocked reads the length of the stream unless it is cached.
func (t *topic) loadLengthLocked(ctx context.Context, store events.Store, s events.Stream) error {
	if t.mu.known {
		return nil
	}
	t.mu.length = 0
	for h, err := range events.Headers(ctx, store, events.Query{Stream: s, Backward: true}) {
		if err != nil {
			return err
		}
		t.mu.length = h.Revision
		break
	}
	t.mu.known = true
	return nil
}
