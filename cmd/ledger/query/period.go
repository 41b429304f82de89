package query

import (
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/spf13/cobra"
)

// A Period is the time range of --since and --until. The zero Period contains all
// times.
type Period struct {
	since, until string    // the flags as given; empty: not given
	from, to     time.Time // set by Resolve: from is included, to is not; zero: unbounded
}

// AddFlags adds --since and --until to cmd. noun names the listed rows in the help texts
// of these flags.
func (p *Period) AddFlags(cmd *cobra.Command, noun string) {
	cmd.Flags().StringVar(&p.since, "since", "", "only "+noun+" since: "+render.TimesHelp)
	cmd.Flags().StringVar(&p.until, "until", "", "only "+noun+" before; a day counts to its end")
}

// Resolve parses the values of --since and --until, in the time zone of printer, and
// stores the times in p. It returns a usage error for a text that is not a time, and if
// the period ends before it begins.
func (p *Period) Resolve(printer *render.Printer) error {
	if p.since != "" {
		from, _, err := printer.ParseTime(p.since)
		if err != nil {
			return fault.Usage("--since: %w", err)
		}
		p.from = from
	}
	if p.until != "" {
		_, to, err := printer.ParseTime(p.until)
		if err != nil {
			return fault.Usage("--until: %w", err)
		}
		p.to = to
	}
	if !p.from.IsZero() && !p.to.IsZero() && !p.from.Before(p.to) {
		return fault.Usage("--until %s is not later than --since %s", p.until, p.since)
	}
	return nil
}

// Contains reports whether t lies in the period.
func (p *Period) Contains(t time.Time) bool {
	return !t.Before(p.from) && (p.to.IsZero() || t.Before(p.to))
}

// Bounds returns the first time of the period and the first time after it; a zero time is
// no bound.
func (p *Period) Bounds() (from, to time.Time) { return p.from, p.to }

// Given returns the values of --since and --until as the user gave them, empty for none.
func (p *Period) Given() (since, until string) { return p.since, p.until }
