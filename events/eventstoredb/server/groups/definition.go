package groups

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// The sentinel errors of groups. Match them with errors.Is.
var (
	// ErrExists is returned by Create for the key of an existing group.
	ErrExists = errors.New("the group exists already")
	// ErrNotFound is returned for a key without a group.
	ErrNotFound = errors.New("the group does not exist")
	// ErrFull is returned by Join if the group has Settings.MaxConsumers
	// consumers.
	ErrFull = errors.New("the group has its maximal number of consumers")
	// ErrBadGroup is returned for an invalid definition, filter or settings, with
	// the reason.
	ErrBadGroup = errors.New("invalid group")
	// ErrDeleted ends the consumers of a deleted group.
	ErrDeleted = errors.New("the group was deleted")
	// ErrStopped ends the consumers of a group that an error of the store or a
	// shutdown stopped. It wraps the error of the store.
	ErrStopped = errors.New("the group stopped")
)

// Category is the category of the streams that record groups: the part of their
// names before the first hyphen. Groups never deliver entries of these streams.
const Category = "subscription"

// A QualifiedName identifies a group by its source and its name.
type QualifiedName struct {
	Source events.Stream `json:"source,omitempty"` // a stream; empty: all streams
	Name   string        `json:"name"`
}

// String returns SOURCE::NAME, with $all for all streams. Distinct keys have
// distinct strings, since a name does not contain ::.
func (k QualifiedName) String() string {
	source := string(k.Source)
	if source == "" {
		source = "$all"
	}
	return source + "::" + k.Name
}

// stream returns the name of the stream that records the group.
func (k QualifiedName) stream() events.Stream { return events.Stream(Category + "-" + k.String()) }

// A Cursor is a position in a source: a revision if the source is a stream, or
// a position in the log if the source is all streams. The other field is zero.
// The entries after the cursor are yet to be delivered.
type Cursor struct {
	Revision events.Revision `json:"revision,omitempty"`
	Position events.Position `json:"position,omitzero"`
}

// A Strategy chooses the consumer that receives an entry. The zero Strategy is
// invalid.
type Strategy string

// The strategies, with the names that EventStoreDB gives them.
const (
	// RoundRobin delivers to the consumers in turn.
	RoundRobin Strategy = "RoundRobin"
	// DispatchToSingle delivers to the first consumer that joined and has free
	// capacity.
	DispatchToSingle Strategy = "DispatchToSingle"
	// Pinned delivers all entries of a stream to one consumer, while the
	// consumers stay the same.
	Pinned Strategy = "Pinned"
	// PinnedByCorrelation delivers all entries with the same $correlationId to
	// one consumer.
	PinnedByCorrelation Strategy = "PinnedByCorrelation"
)

// Settings configure the delivery of a group.
type Settings struct {
	Strategy Strategy `json:"strategy"`
	// MessageTimeout is the time to answer a delivery. 0: no limit.
	MessageTimeout time.Duration `json:"message_timeout"`
	// MaxRetries is the number of redeliveries before an entry is parked.
	MaxRetries int `json:"max_retries"`
	// MaxConsumers bounds the consumers at one time. 0: no limit.
	MaxConsumers int `json:"max_consumers"`
	// Buffer bounds the entries that the group has read and that are not settled.
	Buffer int `json:"buffer"`
	// MinCheckpoint is the number of settled entries from which on
	// CheckpointAfter applies.
	MinCheckpoint int `json:"min_checkpoint"`
	// MaxCheckpoint is the number of settled entries after which a checkpoint is
	// due at once, even if it is less than MinCheckpoint.
	MaxCheckpoint int `json:"max_checkpoint"`
	// CheckpointAfter is the time since the last checkpoint after which the next
	// is due.
	CheckpointAfter time.Duration `json:"checkpoint_after"`

	// Passthrough is returned to clients and has no effect here.
	Passthrough PassthroughSettings `json:"told"`
}

// PassthroughSettings are the settings that groups store for clients and do not
// act on. The server resolves links itself.
type PassthroughSettings struct {
	StartFrom       string `json:"start_from"`
	LiveBuffer      int32  `json:"live_buffer"`
	HistoryBuffer   int32  `json:"history_buffer,omitempty"` // 0: the group was recorded before this field existed; use Settings.Buffer
	ReadBatch       int32  `json:"read_batch"`
	ResolveLinks    bool   `json:"resolve_links"`
	ExtraStatistics bool   `json:"extra_statistics"`
}

// valid returns an ErrBadGroup with the reason for invalid settings, and nil for
// valid ones.
func (s Settings) valid() error {
	switch s.Strategy {
	case RoundRobin, DispatchToSingle, Pinned, PinnedByCorrelation:
	default:
		return fmt.Errorf("%w: unknown strategy %q", ErrBadGroup, s.Strategy)
	}
	switch {
	case s.MessageTimeout < 0, s.CheckpointAfter < 0:
		return fmt.Errorf("%w: a duration is negative", ErrBadGroup)
	case s.MaxRetries < 0, s.MaxConsumers < 0, s.MinCheckpoint < 0:
		return fmt.Errorf("%w: a number is negative", ErrBadGroup)
	case s.Buffer < 1:
		return fmt.Errorf("%w: the buffer size must be at least 1", ErrBadGroup)
	case s.MaxCheckpoint < 1:
		return fmt.Errorf("%w: the maximal checkpoint count is %d, and must be at least 1", ErrBadGroup, s.MaxCheckpoint)
	}
	return nil
}

// A Filter selects the entries that a group of all streams delivers. It has
// either Prefixes or a Regex, in the syntax of package regexp.
type Filter struct {
	ByKind   bool     `json:"by_kind,omitempty"` // match the kind; otherwise the stream name
	Prefixes []string `json:"prefixes,omitempty"`
	Regex    string   `json:"regex,omitempty"`
}

// A GroupConfig is the immutable part of a group, with its current settings. It is
// the data of the record that creates the group.
type GroupConfig struct {
	QualifiedName
	// Start is the cursor after which the group begins.
	Start Cursor `json:"start"`
	// Filter is nil for a group that delivers all entries of its source.
	Filter   *Filter  `json:"filter,omitempty"`
	Settings Settings `json:"settings"`
}

// valid returns an ErrBadGroup with the reason for an invalid definition, and nil
// for a valid one. It does not compile the filter.
func (d GroupConfig) valid() error {
	switch {
	case d.Name == "":
		return fmt.Errorf("%w: it has no name", ErrBadGroup)
	case strings.Contains(d.Name, "::") || strings.HasPrefix(d.Name, ":"):
		return fmt.Errorf("%w: the name %q contains ::, which separates source and name, or begins with a colon", ErrBadGroup, d.Name)
	case d.Source.Category() == Category:
		return fmt.Errorf("%w: %s is the stream of a group", ErrBadGroup, d.Source)
	case d.Filter != nil && d.Source != "":
		return fmt.Errorf("%w: only a group of all streams has a filter", ErrBadGroup)
	}
	return d.Settings.valid()
}
