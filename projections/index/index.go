package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// A Progress reports how far the filling of an index is.
type Progress struct {
	// Events is the number of events that the index has read, and Position the position of
	// the last one.
	Events   int64
	Position events.Position
	// Head is the position of the last event of the log, or zero if the store does not
	// know it without reading.
	Head events.Position
	// Reason is why the index is rebuilt; empty: it is not.
	Reason string
}

// progressInterval is the least time between two reports.
const progressInterval = 100 * time.Millisecond

// CatchUp reads the events up to the end that the log has when the folder is locked. It
// makes the index if there is none, and rebuilds one that is not to be believed. It waits
// while another process fills the index. If report is not nil, CatchUp calls it about ten
// times a second, on its own goroutine. It returns an ErrUnwritable if the folder takes no
// more bytes.
func (x *Index) CatchUp(ctx context.Context, l *events.Ledger, report func(Progress)) (err error) {
	defer func() { err = unwritable(err) }()
	release, err := x.acquire(ctx)
	if err != nil {
		return fmt.Errorf("lock index: %w", err)
	}
	defer func() { err = errors.Join(err, release()) }()
	path, err := x.current()
	switch {
	case errors.Is(err, ErrNoIndex):
		return x.make(ctx, l, report)
	case err != nil:
		return err
	}
	if err := x.tidy(path); err != nil {
		return err
	}
	err = x.fill(ctx, l, path, filling{report: report})
	if errors.Is(err, errUnfit) || errors.Is(err, ErrDamagedIndex) {
		return x.replace(ctx, l, report, err.Error())
	}
	return err
}

// make fills a new index in its place, so that a killed process can continue.
func (x *Index) make(ctx context.Context, l *events.Ledger, report func(Progress)) error {
	path, err := x.fresh()
	if err != nil {
		return err
	}
	linked := false
	err = x.fill(ctx, l, path, filling{report: report, opened: func() error {
		linked = true
		return x.link(path)
	}})
	if err != nil && !linked {
		err = errors.Join(err, discard(path))
	}
	return err
}

// discard removes a database that no link names, with its logs.
func discard(path string) error {
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Rebuild fills a new database from the beginning of the log, and then replaces the old
// one by it. Until then, and if Rebuild fails, readers have the old one. Report is as in
// CatchUp.
func (x *Index) Rebuild(ctx context.Context, l *events.Ledger, report func(Progress)) (err error) {
	defer func() { err = unwritable(err) }()
	release, err := x.acquire(ctx)
	if err != nil {
		return fmt.Errorf("lock index: %w", err)
	}
	defer func() { err = errors.Join(err, release()) }()
	return x.replace(ctx, l, report, "it was asked for")
}

// replace does the work of Rebuild. The caller holds the lock.
func (x *Index) replace(ctx context.Context, l *events.Ledger, report func(Progress), reason string) error {
	path, err := x.fresh()
	if err != nil {
		return err
	}
	if err := x.fill(ctx, l, path, filling{report: report, reason: reason}); err != nil {
		return fmt.Errorf("rebuild index: %w", errors.Join(err, discard(path)))
	}
	return x.link(path)
}

// A filling is how a database is filled.
type filling struct {
	report  func(Progress)
	reason  string          // of a rebuild
	opened  func() error    // called when the database has its tables; nil: nothing
	through events.Position // the last event to read; zero: the last of the log
}

// fill opens the database at path, which it makes if there is none, and reads the events
// that it does not have. It returns an errUnfit if the database does not belong to this
// log or this program.
func (x *Index) fill(ctx context.Context, l *events.Ledger, path string, how filling) (err error) {
	d, err := openDatabase(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	f, err := newFiller(d, x.batch)
	if err == nil {
		err = learned(d)
	}
	if err == nil {
		err = f.progress.check(ctx, l)
	}
	if err == nil && how.opened != nil {
		err = how.opened()
	}
	if err != nil {
		return err
	}
	if err := f.read(ctx, l, how); err != nil {
		return errors.Join(err, f.abandon())
	}
	return nil
}

// read applies the events after the last one of the database, through the end of how or
// of the log.
func (f *filler) read(ctx context.Context, l *events.Ledger, how filling) error {
	head, ok, err := l.Head(ctx)
	if err != nil {
		return err
	}
	q := events.Query{After: f.progress.last.Position, Through: how.through}
	if q.Through.IsZero() && ok {
		q.Through = head.Position
	}
	if !q.Through.IsZero() && q.Through.Compare(q.After) <= 0 || ok && head.Position.IsZero() {
		return nil
	}
	reported := time.Now()
	report := func() {
		if how.report != nil {
			how.report(Progress{f.progress.events, f.progress.last.Position, q.Through, how.reason})
		}
	}
	for v, err := range l.ScanAhead(ctx, q) {
		if err != nil {
			return err
		}
		if err := f.add(v); err != nil {
			return err
		}
		if f.progress.events%256 == 0 && time.Since(reported) >= progressInterval {
			report()
			reported = time.Now()
		}
	}
	if err := f.commit(); err != nil {
		return err
	}
	report()
	return nil
}
