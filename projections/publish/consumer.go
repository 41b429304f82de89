package publish

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// A ConsumerState is the saved state of a publication: the position that the
// publication has reached, and its dead letters. It is stored as a JSON document that
// docs/formats.md describes. Target, Topic and Filter are those of the job that
// created the consumer.
type ConsumerState struct {
	// Format is the version of the document, consumerFormat.
	Format int    `json:"format"`
	Name   string `json:"name"`
	// Target has no credentials.
	Target string `json:"target"`
	Topic  string `json:"topic"`
	Filter Filter `json:"only"`
	// Running reports a run on this Relay now. It is not saved.
	Running bool `json:"-"`

	// Position is the watermark of the run: every record through it was acknowledged,
	// became a dead letter, or is not selected by the filter.
	Position events.Position `json:"position"`
	// Published counts acknowledgements. A record that is published again counts
	// again.
	Published uint64 `json:"published"`
	// Begun is the time of creation, and Saved the time of the last save.
	Begun time.Time `json:"begun"`
	Saved time.Time `json:"saved"`
	// LastError is the last error of any attempt, or nil. Later successes do not
	// clear it.
	LastError *LastError `json:"trouble,omitempty"`
	// DeadLetters are the refused records, in the order in which the target refused
	// them.
	DeadLetters []DeadLetter `json:"poison,omitempty"`
}

// A LastError is an error of a publication, with its time.
type LastError struct {
	Text string    `json:"text"`
	Time time.Time `json:"time"`
}

// copy returns a copy of c that shares no memory that a run changes.
func (c ConsumerState) copy() ConsumerState {
	c.DeadLetters = slices.Clone(c.DeadLetters)
	if c.LastError != nil {
		lastError := *c.LastError
		c.LastError = &lastError
	}
	return c
}

// consumerFormat is the version of the JSON document of a consumer.
const consumerFormat = 1

// decodeConsumer decodes the document of a consumer. It returns an ErrDamaged if the
// document is invalid JSON, or belongs to another name or format.
func decodeConsumer(name string, data []byte) (c ConsumerState, err error) {
	if err = json.Unmarshal(data, &c); err == nil && (c.Format != consumerFormat || c.Name != name) {
		err = fmt.Errorf("it is of %q in format %d", c.Name, c.Format)
	}
	if err != nil {
		return ConsumerState{}, fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	return c, nil
}

// validName matches the names of consumers. They are parts of checkpoint names and
// file names.
var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// ValidName returns nil if name is a valid name of a consumer, and otherwise
// an ErrBadName that states the rule.
func ValidName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%w: %q: use 1 to 64 lower-case letters, digits, dots, hyphens and underscores, and begin with a letter or digit", ErrBadName, name)
	}
	return nil
}
