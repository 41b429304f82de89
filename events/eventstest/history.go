package eventstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Step is one operation on a store.
type Step struct {
	Do      string // append, read, all, follow or reopen
	Stream  events.Stream
	After   events.Revision // of append and read; for all and follow, how many entries to skip
	Records []events.Record
}

// String describes the step.
func (s Step) String() string {
	switch s.Do {
	case "append":
		return fmt.Sprintf("append %d records to %q after %d", len(s.Records), s.Stream, s.After)
	case "read":
		return fmt.Sprintf("read %q after %d", s.Stream, s.After)
	case "reopen":
		return s.Do
	}
	return fmt.Sprintf("%s after %d entries", s.Do, s.After)
}

// RandomHistory returns n steps that depend only on the seed: appends that
// succeed, conflict, repeat or are invalid, and among them reads, follows and
// reopenings.
func RandomHistory(seed uint64, n int) []Step {
	rng := rand.New(rand.NewPCG(seed, 7))
	key := [32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w := stepGenerator{rng: rng, mint: domain.NewMint(func() time.Time { return at }, rand.NewChaCha8(key)), held: map[events.Stream][]events.Record{}}
	steps := make([]Step, n)
	for i := range steps {
		steps[i] = w.step()
	}
	return steps
}

// A stepGenerator makes random steps. It tracks the records that its appends
// leave in each stream.
type stepGenerator struct {
	rng  *rand.Rand
	mint *domain.Mint
	held map[events.Stream][]events.Record
}

func (w *stepGenerator) step() Step {
	stream := events.Stream(fmt.Sprintf("s-%d", w.rng.IntN(4)))
	length := len(w.held[stream])
	switch k := w.rng.IntN(20); {
	case k < 8:
		return w.fresh(stream)
	case k < 11 && length > 0:
		return w.repeat(stream)
	case k < 13:
		return Step{Do: "append", Stream: stream, After: events.Revision(w.rng.IntN(length + 3)), Records: w.records(2)}
	case k == 13:
		return Step{Do: "append", Stream: stream, After: events.Revision(length), Records: append(w.records(1), events.Record{})}
	case k < 16:
		return Step{Do: "read", Stream: stream, After: events.Revision(w.rng.IntN(length + 3))}
	case k < 18:
		return Step{Do: "all", After: events.Revision(w.rng.IntN(40))}
	case k == 18:
		return Step{Do: "follow", After: events.Revision(w.rng.IntN(40))}
	}
	return Step{Do: "reopen"}
}

// fresh returns an append of new records at the end.
func (w *stepGenerator) fresh(s events.Stream) Step {
	records, length := w.records(1+w.rng.IntN(4)), len(w.held[s])
	w.held[s] = append(w.held[s], records...)
	return Step{Do: "append", Stream: s, After: events.Revision(length), Records: records}
}

// repeat returns an append of stored records, sometimes at another revision or
// with a new record after them.
func (w *stepGenerator) repeat(s events.Stream) Step {
	held := w.held[s]
	from := w.rng.IntN(len(held))
	records := slices.Clone(held[from : from+1+w.rng.IntN(len(held)-from)])
	if w.rng.IntN(4) == 0 {
		records = append(records, w.records(1)...)
	}
	return Step{Do: "append", Stream: s, After: events.Revision(from + w.rng.IntN(5)/4), Records: records}
}

func (w *stepGenerator) records(n int) []events.Record {
	records := make([]events.Record, n)
	for i := range records {
		records[i] = events.Record{
			ID:      w.mint.Event(),
			Kind:    fmt.Sprintf("Kind%d", w.rng.IntN(5)),
			Version: 1 + w.rng.IntN(3),
			Time:    time.UnixMicro(w.rng.Int64N(1 << 52)).UTC(),
			Data:    []byte(strings.Repeat("x", w.rng.IntN(1<<w.rng.IntN(15)))),
		}
	}
	return records
}

// Compare runs the steps on two implementations and returns the first
// observable difference, or nil. It does not compare positions, which are each
// store's own, but checks that they increase.
func Compare(ctx context.Context, steps []Step, left, right Harness) error {
	l, err := begin(ctx, left)
	if err != nil {
		return err
	}
	r, err := begin(ctx, right)
	if err != nil {
		return l.end(err)
	}
	for i, step := range steps {
		got, want := l.observe(ctx, step), r.observe(ctx, step)
		if got != want {
			err := fmt.Errorf("step %d, %s: one store answers\n%s\nthe other\n%s", i+1, step, got, want)
			return errors.Join(r.end(l.end(err)))
		}
	}
	return r.end(l.end(nil))
}

// observe runs a step and returns everything that a caller can observe, as
// text.
func (b *fixture) observe(ctx context.Context, step Step) string {
	switch step.Do {
	case "append":
		return errorClass(b.Append(ctx, step.Stream, step.After, step.Records...))
	case "read":
		return formatEntries(collect(b.Read(ctx, step.Stream, step.After)))
	case "all":
		return formatEntries(collect(b.ReadAll(ctx, b.place(ctx, step.After))))
	case "follow":
		dying, cancel := context.WithCancelCause(ctx)
		limit := events.Following{CaughtUp: func(events.Position) { cancel(errStop) }}
		return formatEntries(collect(b.Follow(dying, b.place(ctx, step.After), limit)))
	case "reopen":
		return errorClass(b.reopen(ctx))
	}
	return "unknown step " + step.Do
}

// place returns the position of the nth entry, or zero for n = 0.
func (b *fixture) place(ctx context.Context, n events.Revision) (p events.Position) {
	if n == 0 {
		return p
	}
	for e, err := range limit(b.ReadAll(ctx, p), int(n)) {
		if err == nil {
			p = e.Position
		}
	}
	return p
}

// errorClass returns the sentinel of an error as text, or the whole error.
func errorClass(err error) string {
	for _, known := range []error{events.ErrConflict, events.ErrBadRecord, events.ErrClosed, errStop} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

// formatEntries returns entries and the final error as text, and reports
// positions that do not increase.
func formatEntries(entries []events.Entry, err error) string {
	var b strings.Builder
	last := events.Position{}
	for _, e := range entries {
		if e.Position.Compare(last) <= 0 {
			fmt.Fprintf(&b, "position %s after %s, ", e.Position, last)
		}
		last = e.Position
		b.WriteString(formatEntry(e) + "\n")
	}
	return b.String() + errorClass(err)
}

// TestSame runs the histories of the seeds 1 to seeds on two implementations;
// left and right return harnesses over new storage. It fails with the seed and
// a minimized history if the implementations differ.
func TestSame(t *testing.T, seeds uint64, left, right func() Harness) {
	for seed := uint64(1); seed <= seeds; seed++ {
		steps := RandomHistory(seed, 60)
		differs := func(steps []Step) bool { return Compare(t.Context(), steps, left(), right()) != nil }
		if !differs(steps) {
			continue
		}
		steps = shrink(steps, differs)
		t.Fatalf("seed %d, shrunk to %d steps:\n%s\n%v", seed, len(steps), formatSteps(steps), Compare(t.Context(), steps, left(), right()))
	}
}

// shrink removes halves, quarters and so on of the steps as long as the
// remaining steps still fail.
func shrink(steps []Step, fails func([]Step) bool) []Step {
	for size := len(steps) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(steps); {
			rest := slices.Concat(steps[:from], steps[from+size:])
			if fails(rest) {
				steps = rest
			} else {
				from += size
			}
		}
	}
	return steps
}

// formatSteps returns the steps, one on each line.
func formatSteps(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("  " + s.String() + "\n")
	}
	return b.String()
}
