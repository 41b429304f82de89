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
	// ErrBadTopic: a topic is empty, too long, not UTF-8 or has control characters.
	ErrBadTopic = errors.New("name of a topic is not valid")
	// ErrBadGroup: a group has characters that its checkpoint name cannot have.
	ErrBadGroup = errors.New("name of a group is not valid")
	// ErrBadMessage: the UUID or metadata of a message are not UTF-8.
	ErrBadMessage = errors.New("message is not valid")
	// ErrClosed: the Publisher or Subscriber is closed.
	ErrClosed = errors.New("publisher or subscriber is closed")
)

// Category is the category of topic streams.
const Category = "topic"

// A Config configures a Bus. Failed may be nil, and the zero Redelivery selects the
// defaults.
type Config struct {
	Store events.Store
	// Checkpoints stores the offset of each group. An offset may be older than the
	// last acknowledgement; the group then receives the messages after it again.
	Checkpoints projections.Checkpoints
	// Mint makes the event IDs of messages, and Now their times.
	Mint *domain.Mint
	Now  func() time.Time
	// Failed receives the error that ended a subscription. It is called on the
	// goroutine of the subscription, by several at once.
	Failed     func(group, topic string, err error)
	Redelivery Redelivery
}

// A Bus is a broker over a store. It keeps the length of each topic to which it
// publishes and the state of each group that it serves. The owner of the store closes
// the store after all Publishers and Subscribers of the Bus; the Bus itself has no
// Close.
type Bus struct {
	config Config
	mu     struct {
		sync.Mutex
		topics map[events.Stream]*topic
		// groups has each group by the name of its checkpoint.
		groups map[string]*group
	}
}

// New returns a broker over the store of cfg. It reads the store on first use.
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

// groupNames matches the names of groups, which are parts of checkpoint and stream
// names.
var groupNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// A topic caches the length of a stream to which this process appends: the stream of
// a topic, or one of dead letters. Its mutex is held during an append, so that
// appends of this process to one stream do not conflict.
type topic struct {
	mu struct {
		sync.Mutex
		length events.Revision
		// known reports that length was the length of the stream after the last
		// append or read. Another process may have appended since; the next append
		// then has a conflict.
		known bool
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

// append appends records together at the end of a stream. After a conflict with
// another writer it reads the length of the stream and tries again, for as long as
// ctx lasts. After any other error the records may or may not have been appended; the
// next append reads the length first.
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

// loadLengthLocked reads the length of the stream from the header of its last record,
// unless the length is known. The caller holds t.mu.
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
