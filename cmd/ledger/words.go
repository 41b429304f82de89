package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// open is the word for the outcome of a call that has none.
const open = "open"

// A look is how an outcome is shown beside its word.
type look struct {
	symbol string
	paint  paint
}

// looks are those of all outcomes.
var looks = map[string]look{
	open:                            {"○", cyan},
	domain.Succeeded.String():       {"✓", green},
	domain.Failed.String():          {"✗", red},
	domain.UnknownTool.String():     {"?", yellow},
	domain.Stale.String():           {"≠", yellow},
	domain.InvalidInput.String():    {"!", yellow},
	domain.InvalidOutput.String():   {"!", red},
	domain.DeniedByRule.String():    {"⊘", magenta},
	domain.DeclinedByUser.String():  {"⊘", magenta},
	domain.Disabled.String():        {"–", yellow},
	domain.Interrupted.String():     {"■", yellow},
	domain.Defective.String():       {"‼", red},
	domain.RetentionFailed.String(): {"‼", red},
	domain.MediaTooLarge.String():   {"‼", red},
	domain.Lost.String():            {"◌", red},
}

// outcomeWord returns the word for how a call ended, or open.
func outcomeWord(c calls.Call) string {
	if c.State != calls.Settled {
		return open
	}
	return c.Settlement.Outcome.String()
}

// outcome returns the word of an outcome with its symbol, painted.
func (a *app) outcome(word string) string {
	l := looks[word]
	return a.painted(l.paint, strings.TrimSpace(l.symbol+" "+word))
}

// short returns an ID as tables print it: the prefix, an ellipsis and the last
// six letters.
func short(id fmt.Stringer) string { return shortText(id.String()) }

func shortText(id string) string {
	const tail = 6
	prefix, _, ok := strings.Cut(id, "_")
	if !ok || len(prefix) > 8 || len(id) <= len(prefix)+1+2*tail {
		return id
	}
	return prefix + "_…" + id[len(id)-tail:]
}

// shortCall returns a provider's call ID as tables print it. It may be any
// text.
func shortCall(id domain.CallID) string {
	if text := string(id); visible(text) == text && isASCII(text) {
		return ansi.Truncate(shortText(text), 24, "…")
	}
	return oneLine(string(id), 24)
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return false
		}
	}
	return true
}

// visible returns text without what controls a terminal: a control character
// is shown by its picture, and what turns the direction of writing by a
// replacement. Line ends and tabs stay.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20:
			return 0x2400 + r
		case r == 0x7f:
			return '␡'
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// oneLine returns the beginning of a text on one line of at most so many
// columns.
func oneLine(text string, width int) string {
	if len(text) > 16*width {
		text = strings.ToValidUTF8(text[:16*width], "")
	}
	return ansi.Truncate(visible(strings.Join(strings.Fields(text), " ")), width, "…")
}

// textWidth is how many columns a table gives to a text.
const textWidth = 60

// took returns how long a call ran.
func took(c calls.Call) string {
	ms := durationMS(c)
	if ms == nil {
		return ""
	}
	return lasting(time.Duration(*ms) * time.Millisecond)
}

// durationMS returns how long a call ran in milliseconds, nil where it did not
// begin or has not ended, and where it is lost: when it ended is not known then.
func durationMS(c calls.Call) *int64 {
	if c.Started.IsZero() || c.Settled.IsZero() || c.Settlement.Outcome == domain.Lost {
		return nil
	}
	ms := max(0, c.Settled.Sub(c.Started).Milliseconds())
	return &ms
}

// size returns a number of bytes as people say it.
func size(n int64) string { return humanize.IBytes(uint64(max(0, n))) }

// count returns a number with its noun.
func count(n int, noun string) string { return english.Plural(n, noun, "") }
