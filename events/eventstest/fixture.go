package eventstest

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A fixture is the store under a check with the harness that opens it and a source of
// records. The records depend only on the number of records made before, so a check
// appends the same records in each run. The methods that make records must not run
// concurrently.
type fixture struct {
	Harness                   // opens, closes and cuts the storage
	events.Store              // the open store; replaced by open
	mint         *domain.Mint // of event IDs, with a fixed clock and seed
	made         int          // number of records made
}

// begin opens the storage of h for the first time and returns a fixture over it.
// After an error of Open the check must return, because no store is open.
func begin(ctx context.Context, h Harness) (*fixture, error) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	entropy := rand.NewChaCha8([32]byte{1})
	b := &fixture{Harness: h, mint: domain.NewMint(func() time.Time { return at }, entropy)}
	return b, b.open(ctx)
}

// open opens the storage and replaces the store of the fixture. The caller has closed
// or cut the previous store.
func (b *fixture) open(ctx context.Context) (err error) {
	if b.Store, err = b.Open(ctx); err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	return nil
}

// end closes the store at the end of a check. The argument err is the result of the
// check. If err is not nil, end returns err, and otherwise the error of Close: a store
// that does not close fails the check.
func (b *fixture) end(err error) error {
	if closing := b.Close(b.Store); err == nil && closing != nil {
		return fmt.Errorf("close the store: %w", closing)
	}
	return err
}

// reopen closes the store and opens the same storage again.
func (b *fixture) reopen(ctx context.Context) error {
	if err := b.end(nil); err != nil {
		return err
	}
	return b.open(ctx)
}

// records makes n valid records that differ from all earlier ones. They have data and
// metadata, seven kinds and three versions in turn, and times one microsecond apart.
func (b *fixture) records(n int) []events.Record {
	records := make([]events.Record, n)
	for i := range records {
		b.made++
		records[i] = events.Record{
			ID:       b.mint.Event(),
			Kind:     fmt.Sprintf("Kind%d", b.made%7),
			Version:  1 + b.made%3,
			Time:     time.Date(2026, 3, 1, 12, 0, 0, 1000*b.made, time.UTC),
			Data:     fmt.Appendf(nil, `{"made":%d}`, b.made),
			Metadata: fmt.Appendf(nil, `{"by":"record %d"}`, b.made),
		}
	}
	return records
}

// add appends n new records to a stream whose length is the argument after, and returns
// the records. If the append fails, the error names the append.
func (b *fixture) add(ctx context.Context, s events.Stream, after events.Revision, n int) ([]events.Record, error) {
	records := b.records(n)
	if err := b.Append(ctx, s, after, records...); err != nil {
		return nil, fmt.Errorf("Append(%s, %d, %d records) = %w, want nil", s, after, n, err)
	}
	return records, nil
}

// checkStream reads a stream from its start. It returns an error unless the stream
// consists of exactly these records, equal in all fields.
func (b *fixture) checkStream(ctx context.Context, s events.Stream, want []events.Record) error {
	entries, err := collect(b.Read(ctx, s, 0))
	if err != nil {
		return fmt.Errorf("Read(%s, 0): %w", s, err)
	}
	if len(entries) != len(want) {
		return fmt.Errorf("Read(%s, 0) yields %d entries, want %d", s, len(entries), len(want))
	}
	return checkEntries(entries, s, 0, want)
}

// checkEntries returns an error unless entries are the wanted records of stream s at
// the revisions after+1, after+2 and so on. It does not compare positions.
func checkEntries(entries []events.Entry, s events.Stream, after events.Revision, want []events.Record) error {
	for i, e := range entries {
		at := after + events.Revision(i+1)
		if i >= len(want) {
			return fmt.Errorf("entry %d of %s is there, want the end", at, s)
		}
		if e.Stream != s || e.Revision != at || !sameRecord(e.Record, want[i]) {
			return fmt.Errorf("entry %d of %s is %s, want %s", at, s, formatEntry(e), formatEntry(events.Entry{Record: want[i], Stream: s, Revision: at}))
		}
	}
	if len(entries) < len(want) {
		return fmt.Errorf("%s ends after %d of %d entries", s, len(entries), len(want))
	}
	return nil
}

// formatEntry returns all fields of an entry except its position, for error texts and
// for comparing two stores. Each store chooses its own positions.
func formatEntry(e events.Entry) string {
	return fmt.Sprintf("%s@%d{%s %s v%d %s %s %s}", e.Stream, e.Revision, e.ID, e.Kind, e.Version, e.Time, e.Data, e.Metadata)
}

// collect reads a loop to its end and returns the entries and the final error. It
// also checks the rule of iterators: an error comes with a zero Entry, at most once,
// as the last value. A loop that breaks the rule yields no entries and an error that
// says how.
func collect(seq iter.Seq2[events.Entry, error]) ([]events.Entry, error) {
	var entries []events.Entry
	var failed error
	for e, err := range seq {
		switch {
		case failed != nil:
			return nil, fmt.Errorf("the loop goes on after the error %v", failed)
		case err != nil && (e.Stream != "" || e.Revision != 0 || !e.Position.IsZero() || !e.ID.IsZero()):
			return nil, fmt.Errorf("the error %v comes with the entry %s", err, formatEntry(e))
		case err != nil:
			failed = err
		default:
			entries = append(entries, e)
		}
	}
	return entries, failed
}
