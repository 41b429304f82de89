package main

import (
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/spf13/cobra"
)

// A period is the time range of --since and --until. The zero period contains all
// times.
type period struct {
	since, until string    // the flags as given; empty: not given
	from, to     time.Time // set by resolve: from is included, to is not; zero: unbounded
}

// flags adds --since and --until to cmd. The help texts call the listed rows by the
// noun of the second parameter.
func (p *period) flags(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&p.since, "since", "", "only "+what+" since: "+render.TimesHelp)
	cmd.Flags().StringVar(&p.until, "until", "", "only "+what+" before; a day counts to its end")
}

// resolve parses the flags into from and to. A range that ends before it begins is a
// usage fault.
func (p *period) resolve(a *app) error {
	if p.since != "" {
		from, _, err := a.ParseTime(p.since)
		if err != nil {
			return fault.Usage("--since: %w", err)
		}
		p.from = from
	}
	if p.until != "" {
		_, to, err := a.ParseTime(p.until)
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

// holds reports whether t lies in the period.
func (p *period) holds(t time.Time) bool { return !p.startsAfter(t) && !p.endsBy(t) }

// startsAfter reports whether the whole period is later than t.
func (p *period) startsAfter(t time.Time) bool { return t.Before(p.from) }

// endsBy reports whether the whole period is earlier than or ends at t.
func (p *period) endsBy(t time.Time) bool { return !p.to.IsZero() && !t.Before(p.to) }
