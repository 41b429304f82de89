package main

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
)

// The limits of one append of a copy.
const (
	copyRecords = 256
	copyBytes   = 512 << 10 // below the limit of every supported server
)

// storeCopyCommand returns the command ledger store copy.
func (a *app) storeCopyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "copy FROM TO", Short: "Copy a store into another, folder or database, and compare them",
		Example: "  ledger store copy ~/.local/share/ledger esdb://db-1:2113\n  ledger store copy 'esdb://127.0.0.1:2113?tls=false' ./copy\n" +
			"  ledger store copy ./laptop 'kurrentdb://db?namespace=laptop'",
		Long: `Copy all records, in their order, from one store to another: each is a folder or
a connection string. Then compare both by a digest over every record. Outputs that
are kept whole are copied too, from wherever they can be had, to where the target
keeps its own.

A copy that was interrupted goes on where the target ends when it is run again;
one that is complete is compared, and nothing is written. What is appended to
FROM while it runs comes with the next. A target that holds anything else is a
conflict, and is left as it is from there on.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return a.storeCopy(cmd.Context(), args[0], args[1]) },
	}
}

// A copyRow is the JSON result of ledger store copy.
type copyRow struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Records uint64 `json:"records"` // number of records that both stores hold
	Copied  uint64 `json:"copied"`  // number of records that this run copied
	Outputs int    `json:"outputs"` // number of outputs that this run copied
	Missing int    `json:"missing"` // number of outputs that no reachable node has
	Digest  string `json:"digest"`  // of the records of either store
}

// A copying is a copy in progress.
type copying struct {
	*app
	from, to *stores.Store   // open until storeCopy returns
	row      copyRow         // the result so far
	through  events.Position // end of from when the copy began; later records are not copied
	progress *render.Progress
	bytes    struct{ done, total int64 } // of the outputs, for the progress display
}

// storeCopy copies the store at address from to the address to and prints the
// result.
func (a *app) storeCopy(ctx context.Context, from, to string) (err error) {
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
	c := &copying{app: a, row: copyRow{From: source.String(), To: target.String()}, progress: a.Progress()}
	defer c.progress.End()
	if c.from, err = a.OpenToReadAt(ctx, source); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.from.Close()) }()
	if c.to, err = a.OpenOrCreateAt(ctx, target); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.to.Close()) }()
	if err := c.run(ctx); err != nil {
		return err
	}
	c.progress.End()
	return a.Object(c.row, func() {
		a.Line("%s in both, %d copied now; %s copied.", render.Count(int(c.row.Records), "record"), c.row.Copied, render.Count(c.row.Outputs, "output"))
		if c.row.Missing > 0 {
			a.Line("%s, which no node that can be asked has, not copied: ledger verify lists them.", render.Count(c.row.Missing, "output"))
		}
		a.Line("Digest of both: %s", c.row.Digest)
	})
}

// run copies the records, compares both stores, and copies the outputs.
func (c *copying) run(ctx context.Context) error {
	end, err := c.from.Head(ctx)
	if err != nil {
		return fmt.Errorf("copy from %s: %w", c.row.From, err)
	}
	c.through = end
	digest, err := c.records(ctx)
	if err != nil {
		return err
	}
	if c.row.Copied > 0 {
		// Compare the stored bytes, not the acknowledgements of the appends.
		if digest, err = c.compare(ctx); err != nil {
			return err
		}
	}
	c.row.Records, c.row.Digest = digest.Count(), digest.String()
	return c.outputs(ctx)
}

// pairwise reads both stores in parallel. It calls each for every record that both
// hold, and rest for every record of from behind the end of to. A record that
// differs is a conflict. An entry is valid only during the call.
func (c *copying) pairwise(ctx context.Context, each func(events.Entry), rest func(events.Entry) error) error {
	next, stop := iter.Pull2(events.Lend(ctx, c.to.Log, events.Query{}))
	defer stop()
	// more is true until the target has been read to its end.
	more := true
	for e, err := range events.Lend(ctx, c.from.Log, events.Query{Through: c.through}) {
		if err != nil {
			return fmt.Errorf("copy from %s: %w", c.row.From, err)
		}
		part := "compare"
		if !more {
			part = "copy"
		}
		// The positions of a database are byte offsets of its log, so only the share of
		// the positions is known, not the number of records.
		c.progress.Show(part, render.Records, int64(c.row.Records), stores.Sequence(e.Position), stores.Sequence(c.through))
		c.row.Records++
		if more {
			there, err, ok := next()
			if err != nil {
				return fmt.Errorf("copy to %s: %w", c.row.To, err)
			}
			if more = ok; ok {
				if !sameEntry(e, there) {
					return c.conflict(e, there)
				}
				each(e)
				continue
			}
		}
		if err := rest(e); err != nil {
			return err
		}
	}
	if !more {
		return nil
	}
	if there, err, ok := next(); err != nil {
		return fmt.Errorf("copy to %s: %w", c.row.To, err)
	} else if ok {
		return c.conflict(events.Entry{}, there)
	}
	return nil
}

// sameEntry reports whether two entries hold the same record, ignoring their
// positions.
func sameEntry(a, b events.Entry) bool {
	return a.Stream == b.Stream && a.Revision == b.Revision && a.ID == b.ID && a.Kind == b.Kind && a.Version == b.Version &&
		a.Time.Equal(b.Time) && string(a.Data) == string(b.Data) && string(a.Metadata) == string(b.Metadata)
}

// conflict returns the fault for the first record at which the target differs. A
// zero here means that from has no record left.
func (c *copying) conflict(here, there events.Entry) error {
	expected := "nothing"
	if !here.ID.IsZero() {
		expected = fmt.Sprintf("%s, revision %d of %s, from position %s", here.ID, here.Revision, here.Stream, here.Position)
	}
	f := fault.Usage("%s holds something else: at its position %s there is %s, revision %d of %s, in place of %s",
		c.row.To, there.Position, there.ID, there.Revision, there.Stream, expected)
	f.Exit, f.Code, f.Hint = fault.ExitConflict, "conflict", "copy into an empty store, or into a namespace of its own: ?namespace=NAME"
	return f
}

// records appends the records that the target lacks, and returns the digest of all
// records of from through c.through.
func (c *copying) records(ctx context.Context) (*events.Digest, error) {
	digest := events.NewDigest()
	run := run{to: c.to.Log}
	err := c.pairwise(ctx, digest.Add, func(e events.Entry) error {
		digest.Add(e)
		c.row.Copied++
		if err := run.add(ctx, e); err != nil {
			return c.refused(e, err)
		}
		return nil
	})
	if err == nil {
		if err = run.flush(ctx); err != nil {
			err = c.refused(events.Entry{}, err)
		}
	}
	return digest, err
}

// refused wraps an error of an append to the target. e is the record at hand, or
// zero at the end.
func (c *copying) refused(e events.Entry, err error) error {
	if e.ID.IsZero() {
		return fmt.Errorf("copy to %s: %w", c.row.To, err)
	}
	return fmt.Errorf("copy to %s, before position %s of %s: %w", c.row.To, e.Position, c.row.From, err)
}

// compare reads both stores again and returns their common digest. A record that the
// target lacks is a fault.
func (c *copying) compare(ctx context.Context) (*events.Digest, error) {
	digest := events.NewDigest()
	c.row.Records = 0
	err := c.pairwise(ctx, digest.Add, func(e events.Entry) error {
		f := fault.Usage("%s lacks %s, which was copied to it, from position %s of %s", c.row.To, e.ID, e.Position, c.row.From)
		f.Exit, f.Code = fault.ExitUnverified, "differs"
		return f
	})
	return digest, err
}

// A run is a batch of consecutive records of one stream that are appended together.
type run struct {
	to      events.Store
	stream  events.Stream
	after   events.Revision // length of the stream before the batch
	records []events.Record // copies; they do not alias lent memory
	bytes   int             // size of the batch
}

// add adds a record to the batch. If the record does not continue the batch, or the
// batch is full, it first flushes.
func (r *run) add(ctx context.Context, e events.Entry) error {
	bytes := len(e.Data) + len(e.Metadata) + 2*len(e.Kind)
	follows := e.Stream == r.stream && e.Revision == r.after+events.Revision(len(r.records))+1
	if len(r.records) > 0 && (!follows || len(r.records) >= copyRecords || r.bytes+bytes > copyBytes) {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	if len(r.records) == 0 {
		r.stream, r.after = e.Stream, e.Revision-1
	}
	// The store owns the bytes of a lent entry, so keep a copy.
	e.Data, e.Metadata = append([]byte(nil), e.Data...), append([]byte(nil), e.Metadata...)
	r.records, r.bytes = append(r.records, e.Record), r.bytes+bytes
	return nil
}

// flush appends the batch and empties it.
func (r *run) flush(ctx context.Context) error {
	if len(r.records) == 0 {
		return nil
	}
	err := r.append(ctx, r.after, r.records)
	r.records, r.bytes = nil, 0
	return err
}

// append appends records. If the target rejects them as too large it appends each
// half separately, as only the target knows its limit.
func (r *run) append(ctx context.Context, after events.Revision, records []events.Record) error {
	err := r.to.Append(ctx, r.stream, after, records...)
	// A single record that is too large cannot be divided.
	half := len(records) / 2
	if half == 0 || !errors.Is(err, events.ErrTooLarge) {
		return err
	}
	if err := r.append(ctx, after, records[:half]); err != nil {
		return err
	}
	return r.append(ctx, after+events.Revision(half), records[half:])
}
