package tables

import (
	"context"
	"errors"
	"iter"
	"os"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A pastLog is a log as it was when it ended at a position. Only its reading methods may be
// used.
type pastLog struct {
	events.Scanner
	end events.Position // not zero
}

// bounded returns a query that ends at the end of the past log.
func (p pastLog) bounded(q events.Query) events.Query {
	if !q.Backward && (q.Through.IsZero() || q.Through.Compare(p.end) > 0) {
		q.Through = p.end
	}
	return q
}

// until yields the values that are not behind the end. A backward query begins with later ones.
func until[T any](all iter.Seq2[T, error], at func(T) events.Position, end events.Position) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range all {
			if err == nil && at(v).Compare(end) > 0 {
				continue
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

// positionOf and headerPosition return positions.
func positionOf(e events.Entry) events.Position      { return e.Position }
func headerPosition(h events.Header) events.Position { return h.Position }

// Read implements events.Store.
func (p pastLog) Read(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return until(p.Scanner.Read(ctx, s, after), positionOf, p.end)
}

// ReadAll implements events.Store.
func (p pastLog) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return p.Scan(ctx, events.Query{After: after})
}

// Scan implements events.Scanner.
func (p pastLog) Scan(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return until(p.Scanner.Scan(ctx, p.bounded(q)), positionOf, p.end)
}

// Lend implements events.Scanner.
func (p pastLog) Lend(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return until(p.Scanner.Lend(ctx, p.bounded(q)), positionOf, p.end)
}

// Headers implements events.Scanner.
func (p pastLog) Headers(ctx context.Context, q events.Query) iter.Seq2[events.Header, error] {
	return until(p.Scanner.Headers(ctx, p.bounded(q)), headerPosition, p.end)
}

// Split implements events.Scanner.
func (p pastLog) Split(ctx context.Context, q events.Query, parts int) ([]events.Query, error) {
	return p.Scanner.Split(ctx, p.bounded(q), parts)
}

// withPast calls use with a snapshot of an index of the log up to a position, which it fills in
// a temporary folder.
func withPast(ctx context.Context, p *render.Printer, s *stores.Store, end events.Position, use func(*index.Snapshot) error) (err error) {
	dir, err := os.MkdirTemp("", "ledger-export-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bar := p.Progress()
	x := index.New(dir)
	err = x.CatchUp(ctx, events.NewLedger(pastLog{s.Log, end}, s.Ledger.Mint(), s.Ledger.Now), func(at index.Progress) {
		bar.Show("index", render.Records, at.Events, stores.Sequence(at.Position), stores.Sequence(end))
	})
	bar.End()
	if err != nil {
		return err
	}
	r, err := x.Snapshot(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(r), r.Close())
}
