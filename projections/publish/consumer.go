package publish

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Consumer is the saved state of a publication: the position that it has
// reached, and its dead letters.
type Consumer struct {
	Format  int    `json:"format"` // of this document: 1
	Name    string `json:"name"`
	Target  string `json:"target"` // without credentials
	Topic   string `json:"topic"`
	Filter  Filter `json:"only"`
	Running bool   `json:"-"` // on this Relay, now

	Position    events.Position `json:"position"`  // all through this one was acknowledged, set aside, or not asked for
	Published   uint64          `json:"published"` // acknowledgements, repeats among them
	Begun       time.Time       `json:"begun"`
	Saved       time.Time       `json:"saved"`
	LastError   *LastError      `json:"trouble,omitempty"` // that was met last
	DeadLetters []DeadLetter    `json:"poison,omitempty"`  // in the order in which they were set aside
}

// A LastError is an error of a publication, with its time.
type LastError struct {
	Text string    `json:"text"`
	Time time.Time `json:"time"`
}

// A DeadLetter identifies a record that the target refused. The publication
// continued without it.
type DeadLetter struct {
	Event     domain.EventID  `json:"event"`
	Kind      string          `json:"kind"`
	Stream    events.Stream   `json:"stream"`
	Revision  events.Revision `json:"revision"`
	Position  events.Position `json:"position"`
	Tries     int             `json:"tries"`
	LastError LastError       `json:"trouble"`         // of the last try
	Retry     bool            `json:"again,omitempty"` // it is to be tried again
}

// is reports whether p refers to the record e.
func (p DeadLetter) is(e events.Entry) bool { return p.Event == e.ID && p.Position == e.Position }

// copy returns a copy of c that shares no memory that a run changes.
func (c Consumer) copy() Consumer {
	c.DeadLetters = slices.Clone(c.DeadLetters)
	if c.LastError != nil {
		lastError := *c.LastError
		c.LastError = &lastError
	}
	return c
}

// consumerFormat is the version of the JSON document of a consumer.
const consumerFormat = 1

// decodeConsumer decodes the document of a consumer. It returns an ErrDamaged
// if the document is invalid, or belongs to another name or format.
func decodeConsumer(name string, data []byte) (c Consumer, err error) {
	if err = json.Unmarshal(data, &c); err == nil && (c.Format != consumerFormat || c.Name != name) {
		err = fmt.Errorf("it is of %q in format %d", c.Name, c.Format)
	}
	if err != nil {
		return Consumer{}, fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	return c, nil
}

// validName matches the names of consumers.
var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// ValidName returns nil if name is a valid name of a consumer, and otherwise
// an ErrBadName that states the rule.
func ValidName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%w: %q: use 1 to 64 lower-case letters, digits, dots, hyphens and underscores, and begin with a letter or digit", ErrBadName, name)
	}
	return nil
}
