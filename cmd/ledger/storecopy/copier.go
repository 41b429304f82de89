package storecopy

import (
	"context"
	"errors"
	"fmt"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
)

// A Totals is the JSON result of ledger store copy.
type Totals struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Records uint64 `json:"records"` // number of records that both stores hold
	Copied  uint64 `json:"copied"`  // number of records that this run copied
	Outputs int    `json:"outputs"` // number of outputs that this run copied
	Missing int    `json:"missing"` // number of outputs that no reachable node has
	Digest  string `json:"digest"`  // of the records of either store
}

// A copier is a copy in progress.
type copier struct {
	from, to *stores.Store   // open until Run returns
	totals   Totals          // the result so far
	end      events.Position // end of from when the copy began; later records are not copied
	progress *render.ProgressBar
	bytes    struct{ done, total int64 } // of the outputs, for the progress display
}

// Run copies the store at the address from to the store at the address to, both of which
// it opens with o, and prints the result to p. It closes both stores before it returns.
func Run(ctx context.Context, p *render.Printer, o *stores.Opener, from, to string) (err error) {
	source, err := stores.ParseAddressOf("FROM", from)
	if err != nil {
		return err
	}
	target, err := stores.ParseAddressOf("TO", to)
	if err != nil {
		return err
	}
	if source.Same(target) {
		return fault.Usage("%s would be copied into itself", source)
	}
	c := &copier{totals: Totals{From: source.String(), To: target.String()}, progress: p.Progress()}
	defer c.progress.End()
	if c.from, err = o.OpenToReadAt(ctx, source); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.from.Close()) }()
	if c.to, err = o.OpenOrCreateAt(ctx, target); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.to.Close()) }()
	if err := c.run(ctx); err != nil {
		return err
	}
	c.progress.End()
	return p.Object(c.totals, func() {
		p.Line("%s in both, %d copied now; %s copied.", render.Count(int(c.totals.Records), "record"), c.totals.Copied, render.Count(c.totals.Outputs, "output"))
		if c.totals.Missing > 0 {
			p.Line("%s, which no node that can be asked has, not copied: ledger verify lists them.", render.Count(c.totals.Missing, "output"))
		}
		p.Line("Digest of both: %s", c.totals.Digest)
	})
}

// run copies the records, compares both stores, and copies the outputs.
func (c *copier) run(ctx context.Context) error {
	end, err := c.from.Head(ctx)
	if err != nil {
		return fmt.Errorf("copy from %s: %w", c.totals.From, err)
	}
	c.end = end
	digest, err := c.copyRecords(ctx)
	if err != nil {
		return err
	}
	if c.totals.Copied > 0 {
		// Compare the stored bytes, not the acknowledgements of the appends.
		if digest, err = c.compare(ctx); err != nil {
			return err
		}
	}
	c.totals.Records, c.totals.Digest = digest.Count(), digest.String()
	return c.copyOutputs(ctx)
}

// readBoth reads the source and the target in parallel. It calls the function each for
// every record that both have, and the function rest with the target for every record of the
// source after its end. At the first record that differs it returns a conflict
// fault. An entry is valid only during the call that receives it.
func (c *copier) readBoth(ctx context.Context, each func(events.Entry), rest func(*Target, events.Entry) error) error {
	to := NewTarget(ctx, c.totals.To, c.to)
	defer to.Close()
	for e, err := range events.Lend(ctx, c.from.Log, events.Query{Through: c.end}) {
		if err != nil {
			return fmt.Errorf("copy from %s: %w", c.totals.From, err)
		}
		part := "compare"
		if !to.more {
			part = "copy"
		}
		// The positions of a database are byte offsets of its log, so only the share of
		// the positions is known, not the number of records.
		c.progress.Show(part, render.Records, int64(c.totals.Records), stores.Sequence(e.Position), stores.Sequence(c.end))
		c.totals.Records++
		held, err := to.Held(e, "from position "+e.Position.String())
		if err != nil {
			return err
		}
		if held {
			each(e)
			continue
		}
		if err := rest(to, e); err != nil {
			return err
		}
	}
	if err := to.Flush(ctx); err != nil {
		return c.appendError(events.Entry{}, err)
	}
	return to.End()
}

// sameEntry reports whether two entries hold the same record, ignoring their
// positions.
func sameEntry(a, b events.Entry) bool {
	return a.Stream == b.Stream && a.Revision == b.Revision && a.ID == b.ID && a.Kind == b.Kind && a.Version == b.Version &&
		a.Time.Equal(b.Time) && string(a.Data) == string(b.Data) && string(a.Metadata) == string(b.Metadata)
}

// copyRecords appends the records that the target lacks. It returns the digest of all
// records of the source up to and including the position c.through.
func (c *copier) copyRecords(ctx context.Context) (*events.Digest, error) {
	digest := events.NewDigest()
	err := c.readBoth(ctx, digest.Add, func(to *Target, e events.Entry) error {
		digest.Add(e)
		c.totals.Copied++
		if err := to.Append(ctx, e); err != nil {
			return c.appendError(e, err)
		}
		return nil
	})
	return digest, err
}

// appendError wraps an error of an append to the target. e is the record that was being
// copied, or zero after the last record.
func (c *copier) appendError(e events.Entry, err error) error {
	if e.ID.IsZero() {
		return fmt.Errorf("copy to %s: %w", c.totals.To, err)
	}
	return fmt.Errorf("copy to %s, before position %s of %s: %w", c.totals.To, e.Position, c.totals.From, err)
}

// compare reads both stores again and returns the digest of their records, which is the
// same for both. A record that the target lacks is a fault.
func (c *copier) compare(ctx context.Context) (*events.Digest, error) {
	digest := events.NewDigest()
	c.totals.Records = 0
	err := c.readBoth(ctx, digest.Add, func(_ *Target, e events.Entry) error {
		f := fault.Usage("%s lacks %s, which was copied to it, from position %s of %s", c.totals.To, e.ID, e.Position, c.totals.From)
		f.Exit, f.Code = fault.ExitUnverified, "differs"
		return f
	})
	return digest, err
}
