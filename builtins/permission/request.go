package permission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// ErrInvalidValue says that a text is not a valid value of its type.
var ErrInvalidValue = errors.New("invalid permission value")

// An Ask is a permission request of a tool: an action on resources.
type Ask struct {
	Action    string   // such as edit; required
	Resources []string // at least one
	// Spellings are other texts for the same resource. Rules that ask or deny also
	// match the spellings; rules that allow and approvals match the resource only. It
	// may be nil.
	Spellings map[string][]string
	// Save are the patterns of the resources that the answer "always" allows from then
	// on. Empty: that answer allows this request only.
	Save []string
	// Metadata goes into the record of the request. It may be nil.
	Metadata json.RawMessage
	// Preview returns the text that the question shows, made by [domain.NewPreview]:
	// the whole command, the diff of an edit, the content of a new file. The Gate calls
	// Preview only if neither a rule nor an approval decides, so a call that a rule
	// denies reads nothing. An error of Preview ends the request and is returned
	// unchanged. Nil: the question shows the resources only.
	Preview func(context.Context) (domain.Preview, error)
}

// TextPreview returns a Preview function for a fixed text.
func TextPreview(kind, text string) func(context.Context) (domain.Preview, error) {
	return func(context.Context) (domain.Preview, error) { return domain.NewPreview(kind, text), nil }
}

// A Request is an Ask of a call, with its permission ID.
type Request struct {
	ID         domain.PermissionID
	Invocation domain.Invocation
	Ask
	Shown domain.Preview // the result of Preview; zero if a rule or an approval decided
}

// A Choice is the answer to a request: allow this request only, allow it and all later
// requests that match its Save patterns, or reject it. The zero Choice belongs to a
// decision by a rule or an approval.
type Choice uint8

// The choices.
const (
	Once   Choice = iota + 1 // this request
	Always                   // this request, and later ones that its Save patterns match
	Reject                   // refused
)

var choices = []string{"", "once", "always", "reject"}

func (s Choice) String() string               { return nameOf(choices, uint8(s)) }
func (s Choice) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText accepts the results of String. It returns ErrInvalidValue for any other
// text.
func (s *Choice) UnmarshalText(text []byte) error { return parseName(choices, (*uint8)(s), text) }

// An Authority is the source of a decision: a rule, an approval, a person, the headless
// mode or recovery. The zero Authority is invalid.
type Authority uint8

// The authorities.
const (
	ByRule     Authority = iota + 1 // a configured rule
	ByApproval                      // an approval that a person gave before
	ByUser                          // a person
	ByHeadless                      // the process has no person to ask
	ByRecovery                      // a recovery
)

var authorities = []string{"", "rule", "approval", "user", "headless", "recovery"}

func (d Authority) String() string               { return nameOf(authorities, uint8(d)) }
func (d Authority) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText accepts the results of String. It returns ErrInvalidValue for any other
// text.
func (d *Authority) UnmarshalText(text []byte) error {
	return parseName(authorities, (*uint8)(d), text)
}

// nameOf returns the name of a value, or ? and its number if it has no name.
func nameOf(words []string, value uint8) string {
	if int(value) >= len(words) {
		return fmt.Sprintf("?%d", value)
	}
	return words[value]
}

// parseName sets value to the index of text in words, or returns ErrInvalidValue.
func parseName(words []string, value *uint8, text []byte) error {
	i := slices.Index(words, string(text))
	if i < 0 {
		return fmt.Errorf("parse %q: %w: %q", text, ErrInvalidValue, words[1:])
	}
	*value = uint8(i)
	return nil
}

// An Answer is the decision of an Approver.
type Answer struct {
	Choice   Choice
	Feedback string    // with Reject: text for the model; may be empty
	By       Authority // ByUser or ByHeadless
}

// An Approver decides requests. Decide blocks until a decision is made. If its context
// ends first, Decide returns the cause. An Approver is safe for concurrent use and does
// not retain a request after Decide returned.
type Approver interface {
	Decide(context.Context, Request) (Answer, error)
}

// A Decision is the recorded result of a request.
type Decision struct {
	Permission domain.PermissionID
	Invocation domain.Invocation
	Effect     domain.Effect // Allow or Deny
	By         Authority
	Rule       domain.Rule   // with ByRule
	Resource   string        // with Deny: the denied resource, or the first one if all are denied
	Choice     Choice        // with ByUser, ByHeadless
	Feedback   string        // of a person; may be empty
	Waited     time.Duration // from the question to its answer; zero if no one was asked
	Person     string        // with ByUser: the person who decided; empty: not known
	Approvals  []Approval    // with Allow: those that allowed resources, each once
}

// A Recorder records permission events. Each method returns once its event is durable. Saved
// returns the event that records the approval. A Recorder is safe for concurrent use.
type Recorder interface {
	Requested(context.Context, Request) error
	Decided(context.Context, Decision) error
	Saved(context.Context, Approval) (domain.EventID, error)
	QuestionAsked(context.Context, QuestionRequest) error
	QuestionAnswered(context.Context, QuestionResult) error
}
