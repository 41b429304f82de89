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

// A Consumer is what is kept of a publication under its name: where it has
// come to, and what it set aside.
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

// A LastError is an error that publishing met.
type LastError struct {
	Text string    `json:"text"`
	Time time.Time `json:"time"`
}

// A DeadLetter is a record that was set aside, so that those behind it could go on.
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

// is reports whether p is an entry.
func (p DeadLetter) is(e events.Entry) bool { return p.Event == e.ID && p.Position == e.Position }

// copy returns c with nothing shared that publishing changes.
func (c Consumer) copy() Consumer {
	c.DeadLetters = slices.Clone(c.DeadLetters)
	if c.LastError != nil {
		lastError := *c.LastError
		c.LastError = &lastError
	}
	return c
}

// consumerFormat is the format of the document of a consumer.
const consumerFormat = 1

func decodeConsumer(name string, data []byte) (c Consumer, err error) {
	if err = json.Unmarshal(data, &c); err == nil && (c.Format != consumerFormat || c.Name != name) {
		err = fmt.Errorf("it is of %q in format %d", c.Name, c.Format)
	}
	if err != nil {
		return Consumer{}, fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	return c, nil
}

// validName are what consumers can be called.
var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// ValidName returns an ErrBadName that says what a consumer can be called, or
// nil.
func ValidName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%w: %q: use 1 to 64 lower-case letters, digits, dots, hyphens and underscores, and begin with a letter or digit", ErrBadName, name)
	}
	return nil
}
