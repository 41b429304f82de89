package projections

import (
	"context"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// A Progress reports how far a rebuild is.
type Progress struct {
	Events  uint64          // folded so far
	Total   uint64          // to be folded, counted beforehand; zero where counting would read the whole log
	Bytes   int64           // of data and metadata of all that is to be folded; zero where Total is
	At      events.Position // folded or passed over through here
	Elapsed time.Duration
}

// Rate returns the events folded per second.
func (p Progress) Rate() float64 {
	if p.Elapsed <= 0 {
		return 0
	}
	return float64(p.Events) / p.Elapsed.Seconds()
}

// Left estimates the remaining time from the rate so far. It returns 0 if that
// is unknown.
func (p Progress) Left() time.Duration {
	if p.Events == 0 || p.Total < p.Events {
		return 0
	}
	return time.Duration(float64(p.Elapsed) / float64(p.Events) * float64(p.Total-p.Events))
}

// A progressReporter calls a function with the progress. A nil one does
// nothing.
type progressReporter struct {
	to       func(Progress)
	began    time.Time
	called   time.Time
	progress Progress
}

func newReport(to func(Progress)) *progressReporter {
	if to == nil {
		return nil
	}
	now := time.Now()
	return &progressReporter{to: to, began: now, called: now}
}

// reportEvery is the time between two calls.
const reportEvery = 500 * time.Millisecond

// begin counts the events of a query, if the store can read headers alone.
func (r *progressReporter) begin(ctx context.Context, l *events.Ledger, q events.Query) {
	if r == nil || q.Through.IsZero() {
		return
	}
	for h, err := range l.Headers(ctx, q) {
		if err != nil {
			r.progress.Total, r.progress.Bytes = 0, 0 // folding will say what is wrong
			break
		}
		r.progress.Total++
		r.progress.Bytes += int64(h.Size)
	}
}

// count counts a folded event.
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

func (r *progressReporter) call() {
	r.called = time.Now()
	r.progress.Elapsed = r.called.Sub(r.began)
	r.to(r.progress)
}

// end makes the last call.
func (r *progressReporter) end(v interface{ Position() events.Position }) {
	if r == nil {
		return
	}
	r.progress.At = v.Position()
	r.call()
}
