package main

import (
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/spf13/cobra"
)

// A period is what --since and --until say. The zero period is all times.
type period struct {
	since, until string
	from, to     time.Time // zero: without a beginning or an end
}

// flags adds --since and --until. what names the listed rows.
func (p *period) flags(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&p.since, "since", "", "only "+what+" since: "+render.TimesHelp)
	cmd.Flags().StringVar(&p.until, "until", "", "only "+what+" before; a day counts to its end")
}

// resolve reads the flags.
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

// holds reports whether a time is in the period.
func (p *period) holds(t time.Time) bool { return !p.startsAfter(t) && !p.endsBy(t) }

// startsAfter reports whether a time is before the period.
func (p *period) startsAfter(t time.Time) bool { return t.Before(p.from) }

// endsBy reports whether the period is over at a time.
func (p *period) endsBy(t time.Time) bool { return !p.to.IsZero() && !t.Before(p.to) }
