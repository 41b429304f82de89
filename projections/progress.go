package projections

import (
	"context"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// A RebuildProgress reports how far a rebuild is.
type RebuildProgress struct {
	// Events is the number of events folded so far.
	Events uint64
	// Total is the number of events to fold. It is counted before the first is
	// folded. It is zero if the store cannot count without reading the whole log, or
	// if counting failed.
	Total uint64
	// Bytes is the size of the data and metadata of the Total events, or zero if Total
	// is zero.
	Bytes int64
	// At is the position through which the view has folded or skipped all events.
	At events.Position
	// Elapsed is the time since Rebuild began, counting included.
	Elapsed time.Duration
}

// A progressReporter counts the events of a rebuild and reports the progress to a
// function. The goroutine that folds owns it. On a nil progressReporter, all methods
// do nothing.
type progressReporter struct {
	// to receives each report. It is not nil.
	to    func(RebuildProgress)
	began time.Time
	// called is the time of the last report. Before the first report it is the time of
	// the beginning.
	called   time.Time
	progress RebuildProgress
}

// newReport returns a reporter that passes its reports to the function to, or nil if
// to is nil. The elapsed time starts now.
func newReport(to func(RebuildProgress)) *progressReporter {
	if to == nil {
		return nil
	}
	now := time.Now()
	return &progressReporter{to: to, began: now, called: now}
}

// reportEvery is the least time between two reports, except for the last.
const reportEvery = 500 * time.Millisecond

// begin counts the events of a query by their headers. If the query has no end
// position, the store cannot scan, and begin leaves the total at zero.
func (r *progressReporter) begin(ctx context.Context, l *events.Ledger, q events.Query) {
	if r == nil || q.Through.IsZero() {
		return
	}
	for h, err := range l.Headers(ctx, q) {
		if err != nil {
			// Folding reads the same records and returns the error.
			r.progress.Total, r.progress.Bytes = 0, 0
			break
		}
		r.progress.Total++
		r.progress.Bytes += int64(h.Size)
	}
}

// count counts a folded event. It reads the clock once in 1,024 events, so that the
// reports do not slow a rebuild down.
func (r *progressReporter) count(e events.Envelope) {
	if r == nil {
		return
	}
	r.progress.Events++
	r.progress.At = e.Position
	if r.progress.Events%1024 == 0 && time.Since(r.called) >= reportEvery {
		r.call()
	}
}

// call reports the progress now.
func (r *progressReporter) call() {
	r.called = time.Now()
	r.progress.Elapsed = r.called.Sub(r.began)
	r.to(r.progress)
}

// end makes the last report, at the final position of the view.
func (r *progressReporter) end(v interface{ Position() events.Position }) {
	if r == nil {
		return
	}
	r.progress.At = v.Position()
	r.call()
}
