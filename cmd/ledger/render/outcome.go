package render

import (
	"strconv"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// OpenOutcome is the word for the outcome of a call that has none.
const OpenOutcome = "open"

// A look is how an outcome is shown beside its word.
type look struct {
	symbol string
	paint  paint
}

// looks are those of all outcomes.
var looks = map[string]look{
	OpenOutcome:                     {"○", cyan},
	domain.Succeeded.String():       {"✓", Green},
	domain.Failed.String():          {"✗", Red},
	domain.UnknownTool.String():     {"?", Yellow},
	domain.Stale.String():           {"≠", Yellow},
	domain.InvalidInput.String():    {"!", Yellow},
	domain.InvalidOutput.String():   {"!", Red},
	domain.DeniedByRule.String():    {"⊘", Magenta},
	domain.DeclinedByUser.String():  {"⊘", Magenta},
	domain.Disabled.String():        {"–", Yellow},
	domain.Interrupted.String():     {"■", Yellow},
	domain.Defective.String():       {"‼", Red},
	domain.RetentionFailed.String(): {"‼", Red},
	domain.MediaTooLarge.String():   {"‼", Red},
	domain.Lost.String():            {"◌", Red},
}

// OutcomeOf returns the word for how a call ended, or open.
func OutcomeOf(c calls.Call) string {
	if c.State != calls.Settled {
		return OpenOutcome
	}
	return c.Settlement.Outcome.String()
}

// Outcome returns the word of an outcome with its symbol, painted.
func (p *Printer) Outcome(word string) string {
	l := looks[word]
	return p.Styled(l.paint, strings.TrimSpace(l.symbol+" "+word))
}

// Took returns how long a call ran.
func Took(c calls.Call) string {
	ms := DurationMS(c)
	if ms == nil {
		return ""
	}
	return Duration(time.Duration(*ms) * time.Millisecond)
}

// DurationMS returns how long a call ran in milliseconds, nil where it did not
// begin or has not ended, and where it is lost: when it ended is not known then.
func DurationMS(c calls.Call) *int64 {
	if c.Started.IsZero() || c.Settled.IsZero() || c.Settlement.Outcome == domain.Lost {
		return nil
	}
	ms := max(0, c.Settled.Sub(c.Started).Milliseconds())
	return &ms
}

// PaddedOutcome returns an outcome as tables show it, filled up to a width.
func (p *Printer) PaddedOutcome(word string, width int) string {
	return p.Outcome(word) + strings.Repeat(" ", max(0, width-len([]rune(looks[word].symbol+" "+word))))
}

// Duration returns how long something ran.
func Duration(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return d.Round(time.Second).String()
}
