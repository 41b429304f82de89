package index

import (
	"context"
	"errors"
	"fmt"
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
		return x.build(ctx, l, building{report: report, texts: true})
	case err != nil:
		return err
	}
	if err := x.tidy(path); err != nil {
		return err
	}
	err = x.extend(ctx, l, path, report)
	if errors.Is(err, errUnfit) || errors.Is(err, ErrDamagedIndex) {
		return x.build(ctx, l, building{report: report, reason: err.Error(), texts: x.hasText(ctx)})
	}
	return err
}

// Rebuild fills a new database from the beginning of the log, and then replaces the old
// one by it. Until then, and if Rebuild fails, readers have the old one. The new index has
// full text if the old one has, or if there is none. Report is as in CatchUp.
func (x *Index) Rebuild(ctx context.Context, l *events.Ledger, report func(Progress)) error {
	return x.rebuild(ctx, l, report, x.hasText(ctx))
}

// RebuildWithText is Rebuild, and the new index has full text.
func (x *Index) RebuildWithText(ctx context.Context, l *events.Ledger, report func(Progress)) error {
	return x.rebuild(ctx, l, report, true)
}

// RebuildWithoutText is Rebuild, and the new index and those that replace it have no full
// text: they lack the tables texts, text_search and text_words.
func (x *Index) RebuildWithoutText(ctx context.Context, l *events.Ledger, report func(Progress)) error {
	return x.rebuild(ctx, l, report, false)
}

// rebuild does the work of Rebuild.
func (x *Index) rebuild(ctx context.Context, l *events.Ledger, report func(Progress), texts bool) (err error) {
	defer func() { err = unwritable(err) }()
	release, err := x.acquire(ctx)
	if err != nil {
		return fmt.Errorf("lock index: %w", err)
	}
	defer func() { err = errors.Join(err, release()) }()
	return x.build(ctx, l, building{report: report, reason: "it was asked for", texts: texts})
}

// hasText reports whether the index has full text. It is true for an index that is absent,
// damaged or of a version that does not say it.
func (x *Index) hasText(ctx context.Context) bool {
	r, err := x.open(ctx)
	if err != nil {
		return true
	}
	p, err := r.progress(ctx)
	return errors.Join(err, r.close()) != nil || p.texts
}

// A building is how a new database is filled.
type building struct {
	report  func(Progress)
	reason  string          // of a rebuild; empty: there is no index yet
	texts   bool            // with full text
	through events.Position // the last event to read; zero: the last of the log
}

// build fills a new database from the beginning of the log, makes it durable and makes the
// link name it. If filling fails, it removes the new database. The caller holds the lock.
func (x *Index) build(ctx context.Context, l *events.Ledger, how building) error {
	path, err := x.fresh()
	if err != nil {
		return err
	}
	err = x.create(ctx, l, path, how)
	if err == nil {
		err = syncFile(path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("build index: %w", err), removeDatabase(path))
	}
	return x.link(path)
}

// create makes and fills the database at path, which it does not sync.
func (x *Index) create(ctx context.Context, l *events.Ledger, path string, how building) (err error) {
	d, err := connect(path, writing, bulkPragmas)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	f, err := newBulkFiller(d, x.batch, how.texts)
	if err == nil {
		err = f.read(ctx, l, how)
	}
	if err == nil {
		err = f.finish()
	}
	return err
}

// extend reads the events that the database at path does not have. It returns an errUnfit
// if the database does not belong to this log or this program.
func (x *Index) extend(ctx context.Context, l *events.Ledger, path string, report func(Progress)) (err error) {
	d, err := connect(path, writing, writerPragmas)
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
	if err != nil {
		return err
	}
	if err := f.read(ctx, l, building{report: report}); err != nil {
		return errors.Join(err, f.abandon())
	}
	return nil
}

// read applies the events after the last one of the database, through the end of how or
// of the log.
func (f *filler) read(ctx context.Context, l *events.Ledger, how building) error {
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
