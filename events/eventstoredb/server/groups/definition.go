package groups

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// The errors of groups.
var (
	ErrExists   = errors.New("there is such a group already")
	ErrNotFound = errors.New("there is no such group")
	ErrFull     = errors.New("the group has as many consumers as it may have")
	ErrBadGroup = errors.New("group is not valid")
	ErrDeleted  = errors.New("the group was deleted")
	ErrStopped  = errors.New("the group stopped")
)

// Category is that of the streams in which groups are on record.
const Category = "subscription"

// A Key names a group: what it reads and what it is called.
type Key struct {
	Source events.Stream `json:"source,omitempty"` // empty: all streams
	Name   string        `json:"name"`
}

// String returns the source, two colons and the name.
func (k Key) String() string {
	source := string(k.Source)
	if source == "" {
		source = "$all"
	}
	return source + "::" + k.Name
}

func (k Key) stream() events.Stream { return events.Stream(Category + "-" + k.String()) }

// A Cursor is how far a group has come: in a stream a revision, in all of them
// a position. What follows it is to be handed out.
type Cursor struct {
	Revision events.Revision `json:"revision,omitempty"`
	Position events.Position `json:"position,omitzero"`
}

// A Strategy says which consumer is handed an entry. The zero Strategy is not
// valid.
type Strategy string

// The strategies. Their names are those of EventStoreDB.
const (
	RoundRobin          Strategy = "RoundRobin"          // each in turn
	DispatchToSingle    Strategy = "DispatchToSingle"    // the one that joined first, as long as it has room
	Pinned              Strategy = "Pinned"              // one and the same for all entries of a stream
	PinnedByCorrelation Strategy = "PinnedByCorrelation" // one and the same for all entries with a $correlationId
)

// Settings say how a group deals with its consumers.
type Settings struct {
	Strategy        Strategy      `json:"strategy"`
	MessageTimeout  time.Duration `json:"message_timeout"`  // how long a consumer may take; 0: for ever
	MaxRetries      int           `json:"max_retries"`      // how often an entry is tried again before it is parked
	MaxConsumers    int           `json:"max_consumers"`    // 0: any number
	Buffer          int           `json:"buffer"`           // entries held in memory
	MinCheckpoint   int           `json:"min_checkpoint"`   // entries settled before a checkpoint is worth its record
	MaxCheckpoint   int           `json:"max_checkpoint"`   // entries settled after which there is one, even if they are fewer than MinCheckpoint
	CheckpointAfter time.Duration `json:"checkpoint_after"` // how long one waits for more

	// What callers gave, and is given back to them.
	Passthrough PassthroughSettings `json:"told"`
}

// Told are settings that groups do not act on and give back as they came. Links
// are resolved by the server that sends the entries.
type PassthroughSettings struct {
	StartFrom       string `json:"start_from"`
	LiveBuffer      int32  `json:"live_buffer"`
	HistoryBuffer   int32  `json:"history_buffer,omitempty"` // 0: of a group that was written before this field, Settings.Buffer
	ReadBatch       int32  `json:"read_batch"`
	ResolveLinks    bool   `json:"resolve_links"`
	ExtraStatistics bool   `json:"extra_statistics"`
}

// valid returns an ErrBadGroup that says what is wrong, or nil.
func (s Settings) valid() error {
	switch s.Strategy {
	case RoundRobin, DispatchToSingle, Pinned, PinnedByCorrelation:
	default:
		return fmt.Errorf("%w: there is no strategy %q", ErrBadGroup, s.Strategy)
	}
	switch {
	case s.MessageTimeout < 0, s.CheckpointAfter < 0:
		return fmt.Errorf("%w: a time is negative", ErrBadGroup)
	case s.MaxRetries < 0, s.MaxConsumers < 0, s.MinCheckpoint < 0:
		return fmt.Errorf("%w: a number is negative", ErrBadGroup)
	case s.Buffer < 1:
		return fmt.Errorf("%w: its buffer holds nothing", ErrBadGroup)
	case s.MaxCheckpoint < 1:
		return fmt.Errorf("%w: a checkpoint is due at the latest after %d entries, and not after at least 1", ErrBadGroup, s.MaxCheckpoint)
	}
	return nil
}

// A Filter says which entries of all streams a group hands out. Its regular
// expression is one that Compile of package regexp takes.
type Filter struct {
	ByKind   bool     `json:"by_kind,omitempty"` // by the kind, else by the stream
	Prefixes []string `json:"prefixes,omitempty"`
	Regex    string   `json:"regex,omitempty"`
}

// A Definition is what a group is.
type Definition struct {
	Key
	Start    Cursor   `json:"start"`
	Filter   *Filter  `json:"filter,omitempty"`
	Settings Settings `json:"settings"`
}

func (d Definition) valid() error {
	switch {
	case d.Name == "":
		return fmt.Errorf("%w: it has no name", ErrBadGroup)
	case strings.Contains(d.Name, "::") || strings.HasPrefix(d.Name, ":"):
		return fmt.Errorf("%w: its name %q has two colons, which stand between a source and a name, or begins with one", ErrBadGroup, d.Name)
	case d.Source.Category() == Category:
		return fmt.Errorf("%w: %s is a stream of groups", ErrBadGroup, d.Source)
	case d.Filter != nil && d.Source != "":
		return fmt.Errorf("%w: only a group of all streams has a filter", ErrBadGroup)
	}
	return d.Settings.valid()
}
