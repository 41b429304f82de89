package render

import (
	"strconv"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// OpenOutcome is the outcome column of a call that has not been settled.
const OpenOutcome = "open"

// A look is the symbol and the colour of an outcome in tables. The symbol makes
// outcomes distinct without colours.
type look struct {
	// symbol is one character, which precedes the word.
	symbol string
	paint  paint
}

// looks maps the word of each outcome to its look. Red is a failure of the tool or
// the ledger, yellow a call that did not run or was stopped, magenta a refused
// permission.
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

// OutcomeOf returns the word of a call's outcome as the log records it, or
// OpenOutcome if the call is not settled.
func OutcomeOf(c calls.Call) string {
	if c.State != calls.Settled {
		return OpenOutcome
	}
	return c.Settlement.Outcome.String()
}

// Outcome returns the symbol and the word of an outcome in its colour. An unknown word has
// no symbol.
func (p *Printer) Outcome(word string) string {
	l := looks[word]
	return p.Styled(l.paint, strings.TrimSpace(l.symbol+" "+word))
}

// Took formats the duration of a call for a table. It returns an empty string if the
// call has no duration (see DurationMS).
func Took(c calls.Call) string {
	ms := DurationMS(c)
	if ms == nil {
		return ""
	}
	return Duration(time.Duration(*ms) * time.Millisecond)
}

// DurationMS returns the duration of a call in milliseconds: from the start to the return
// of the tool, if it is on record, and otherwise to the end. It returns nil for a call that
// did not begin or has not ended, and for a lost call, whose end time is unknown.
func DurationMS(c calls.Call) *int64 {
	if c.Started.IsZero() || c.Settled.IsZero() || c.Settlement.Outcome == domain.Lost {
		return nil
	}
	if ran := c.Settlement.RanMS; ran > 0 {
		return &ran
	}
	ms := max(0, c.Settled.Sub(c.Started).Milliseconds())
	return &ms
}

// PaddedOutcome returns the text of Outcome, padded with spaces to a width in columns.
func (p *Printer) PaddedOutcome(word string, width int) string {
	return p.Outcome(word) + strings.Repeat(" ", max(0, width-len([]rune(looks[word].symbol+" "+word))))
}

// Duration formats a duration in at most a few characters: 120ms below a second, 1.5s
// below a minute, otherwise 2m3s. It formats a negative one as 0ms.
func Duration(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return d.Round(time.Second).String()
}
