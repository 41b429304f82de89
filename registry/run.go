package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A ran is what came of a tool.
type ran struct {
	out domain.Output
	err error
}

// A handover passes what came of a tool to the settling, or leaves it to the
// goroutine of the tool where the settling no longer waits.
type handover struct {
	taken  atomic.Bool   // by whichever side came first
	ran    ran           // by the tool, before it takes
	passed chan struct{} // closed once the tool took, and the settling may read ran
}

// run runs the tool on a goroutine of its own, so that one that does not heed
// its interruption can be left behind when its grace is over. What such a one
// returns is kept as late.
func (s *settling) run(ctx context.Context, bound domain.Bound) (domain.Output, error) {
	h := &s.tool
	h.ran.err, h.passed = &domain.Defect{Value: "the tool ended its goroutine"}, make(chan struct{})
	inv := s.inv.Reporting(s.last.set)
	s.m.registry.layers.calls.run(func() {
		defer func() { // also where the tool ended its goroutine
			if h.taken.CompareAndSwap(false, true) {
				close(h.passed)
				return
			}
			s.late(ctx, h.ran)
		}()
		h.ran.out, h.ran.err = bound.Run(ctx, inv)
	})
	select {
	case <-h.passed:
		return h.ran.out, h.ran.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(s.m.registry.config.Grace)
	defer grace.Stop()
	select {
	case <-h.passed:
		return h.ran.out, h.ran.err
	case <-grace.C:
	}
	if h.taken.CompareAndSwap(false, true) {
		return domain.Output{}, fmt.Errorf("%w: %w", domain.ErrInterrupted, context.Cause(ctx))
	}
	<-h.passed
	return h.ran.out, h.ran.err
}

// late keeps what came of a tool that was left behind, once the end of its
// call is on record.
func (s *settling) late(ctx context.Context, r ran) {
	<-s.over
	if s.end.IsZero() {
		return
	}
	e := events.LateResultObserved{
		Message: s.inv.Message, Call: s.call.ID, Tool: s.call.Name, Settlement: s.end,
		Outcome: domain.Succeeded, Structured: r.out.Structured(),
	}
	if r.err != nil {
		end := ended(ctx, r.err)
		e.Outcome, e.Text = end.Outcome, end.Text
	}
	if limit := s.m.registry.config.Limits.Bytes; len(e.Structured) > limit {
		e.Text = fmt.Sprintf("output of %d bytes came late and is not kept: it is over the limit of %d", len(e.Structured), limit)
		e.Structured = nil
	}
	ctx, cancel := s.grace(ctx)
	defer cancel()
	// The call has its end; what broke while this was kept has nobody to read it.
	_ = s.journal.Late(ctx, s.m.registry.layers.ledger.Draft(e, s.end))
}

// A lastProgress holds what a running call said last.
type lastProgress struct {
	mu struct {
		sync.Mutex
		said *domain.Progress
	}
}

func (l *lastProgress) set(p domain.Progress) {
	p.Structured, p.Content = bytes.Clone(p.Structured), slices.Clone(p.Content)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.said = &p
}

// get returns what was said last, and nil if nothing was. What has no wire form
// says so in its place.
func (l *lastProgress) get() *domain.Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := json.Marshal(l.mu.said); err != nil {
		return &domain.Progress{Content: domain.Contents{domain.Text("Progress cannot be kept: " + err.Error())}}
	}
	return l.mu.said
}
