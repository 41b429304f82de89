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

// ErrBadWord says that a text is not one of the words of its type.
var ErrBadWord = errors.New("not one of the words of a permission")

// An Ask is what a tool asks for: an action on resources.
type Ask struct {
	Action    string
	Resources []string // at least one
	// Spellings are other texts for the same resource. Rules that ask or deny
	// match them too; rules that allow and approvals do not. It may be nil.
	Spellings map[string][]string
	// Save are the patterns of resources that an answer for always allows from
	// then on. Empty: such an answer counts once.
	Save []string
	// Metadata goes into the record of the request. It may be nil.
	Metadata json.RawMessage
	// Show returns the text that the question shows, made by [domain.Show]: the
	// whole command, the diff of an edit, the content of a new file. The Gate
	// calls it only if neither a rule nor an approval decides, so a call that
	// a rule denies reads nothing. Its error ends the ask as it is. Nil: the
	// question shows the resources only.
	Show func(context.Context) (domain.Preview, error)
}

// ShowText returns a Show for a text that is already at hand.
func ShowText(kind, text string) func(context.Context) (domain.Preview, error) {
	return func(context.Context) (domain.Preview, error) { return domain.NewPreview(kind, text), nil }
}

// A Request is an Ask of one call, with its ID.
type Request struct {
	ID         domain.PermissionID
	Invocation domain.Invocation
	Ask
	Shown domain.Preview // what Show returned; zero where no person is asked
}

// A Scope is how far an answer goes. The zero Scope is that of a decision that
// no person took.
type Scope uint8

// The scopes.
const (
	Once   Scope = iota + 1 // this request
	Always                  // this request and what its Save patterns match
	Reject                  // refused
)

var scopes = []string{"", "once", "always", "reject"}

func (s Scope) String() string               { return word(scopes, uint8(s)) }
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText accepts what String gives. Any other text is an ErrBadWord.
func (s *Scope) UnmarshalText(text []byte) error { return parse(scopes, (*uint8)(s), text) }

// A Decider is the kind of who decided. The zero Decider is not valid.
type Decider uint8

// The deciders.
const (
	ByRule     Decider = iota + 1 // a configured rule
	ByApproval                    // an approval that a person gave before
	ByUser                        // a person
	ByHeadless                    // nobody: there was no one to ask
	ByRecovery                    // whoever recovered the ledger
)

var deciders = []string{"", "rule", "approval", "user", "headless", "recovery"}

func (d Decider) String() string               { return word(deciders, uint8(d)) }
func (d Decider) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText accepts what String gives. Any other text is an ErrBadWord.
func (d *Decider) UnmarshalText(text []byte) error { return parse(deciders, (*uint8)(d), text) }

func word(words []string, value uint8) string {
	if int(value) >= len(words) {
		return fmt.Sprintf("?%d", value)
	}
	return words[value]
}

func parse(words []string, value *uint8, text []byte) error {
	i := slices.Index(words, string(text))
	if i < 0 {
		return fmt.Errorf("parse %q: %w: %q", text, ErrBadWord, words[1:])
	}
	*value = uint8(i)
	return nil
}

// An Answer is what an Approver decided.
type Answer struct {
	Scope    Scope
	Feedback string  // with Reject: what the model should read; may be empty
	By       Decider // ByUser or ByHeadless
}

// An Approver decides about a request, or finds out who does. Decide returns
// when the decision is taken, or the cause of its context when that ends. It
// is safe for concurrent use and keeps nothing of a request that it returned
// from.
type Approver interface {
	Decide(context.Context, Request) (Answer, error)
}

// A Decision is how a request ended.
type Decision struct {
	Permission domain.PermissionID
	Invocation domain.Invocation
	Effect     domain.Effect // Allow or Deny
	By         Decider
	Rule       domain.Rule // with ByRule
	Resource   string      // with Deny: the one refused, the first where all are
	Scope      Scope       // with ByUser, ByHeadless
	Feedback   string      // of a person; may be empty
	Waited     time.Duration
	Person     string // with ByUser: who decided; empty: not known
}

// A Recorder keeps facts about permission. Each method returns once its fact
// is durable. It is safe for concurrent use.
type Recorder interface {
	Requested(context.Context, Request) error
	Decided(context.Context, Decision) error
	Saved(context.Context, Approval) error
}
