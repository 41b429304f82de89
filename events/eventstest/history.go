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

// A Step is one operation of a caller on a store. It is a value: the same step runs
// on each of the compared stores.
type Step struct {
	Do      string          // append, read, all (ReadAll), follow or reopen
	Stream  events.Stream   // of append and read
	After   events.Revision // append, read: the revision; all, follow: the entries to skip
	Records []events.Record // of append; may be invalid on purpose
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

// RandomHistory returns n steps that depend only on the seed. Two of five steps
// append new records. The others repeat an append, conflict, append an invalid
// record, read, follow or reopen the store. It uses four streams, so that appends
// often meet.
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

// A stepGenerator makes the steps of one history. held maps a stream to the records that
// its fresh appends have added, so that the generator can repeat records and name
// revisions around the end of a stream. A fresh append adds new records at that end. An
// append at a random revision is not added to held. If it succeeds, the stream is longer
// than held, and later fresh appends to it conflict.
type stepGenerator struct {
	rng  *rand.Rand                        // decides every choice
	mint *domain.Mint                      // of event IDs, from the seed
	held map[events.Stream][]events.Record // the records of the fresh appends to each stream
}

// step returns the next step. It draws k from 20 numbers, and the cases give each
// kind of step its share. A repeat in a stream without records becomes an append at a
// random revision.
func (w *stepGenerator) step() Step {
	stream := events.Stream(fmt.Sprintf("s-%d", w.rng.IntN(4)))
	length := len(w.held[stream])
	switch k := w.rng.IntN(20); {
	// 8 of 20: new records at the end of the stream.
	case k < 8:
		return w.fresh(stream)
	// 3 of 20: records that the stream has.
	case k < 11 && length > 0:
		return w.repeat(stream)
	// 2 of 20: new records at a random revision, which usually conflicts.
	case k < 13:
		return Step{Do: "append", Stream: stream, After: events.Revision(w.rng.IntN(length + 3)), Records: w.records(2)}
	// 1 of 20: a valid record and an invalid one.
	case k == 13:
		return Step{Do: "append", Stream: stream, After: events.Revision(length), Records: append(w.records(1), events.Record{})}
	// 2 of 20: a read, sometimes beyond the end.
	case k < 16:
		return Step{Do: "read", Stream: stream, After: events.Revision(w.rng.IntN(length + 3))}
	// 2 of 20: a read of the log.
	case k < 18:
		return Step{Do: "all", After: events.Revision(w.rng.IntN(40))}
	// 1 of 20: a follower until it has caught up; the rest reopen the store.
	case k == 18:
		return Step{Do: "follow", After: events.Revision(w.rng.IntN(40))}
	}
	return Step{Do: "reopen"}
}

// fresh returns a step that appends one to four new records at the end of a stream, and
// adds the records to held.
func (w *stepGenerator) fresh(s events.Stream) Step {
	records, length := w.records(1+w.rng.IntN(4)), len(w.held[s])
	w.held[s] = append(w.held[s], records...)
	return Step{Do: "append", Stream: s, After: events.Revision(length), Records: records}
}

// repeat returns a step that appends records again that the stream has, at the revision
// that they have. One of four such steps also appends a new record, and one of five
// names the next revision instead. Most of these changed repeats conflict.
func (w *stepGenerator) repeat(s events.Stream) Step {
	held := w.held[s]
	from := w.rng.IntN(len(held))
	records := slices.Clone(held[from : from+1+w.rng.IntN(len(held)-from)])
	if w.rng.IntN(4) == 0 {
		records = append(records, w.records(1)...)
	}
	return Step{Do: "append", Stream: s, After: events.Revision(from + w.rng.IntN(5)/4), Records: records}
}

// records makes n valid records with random kinds, versions and times. Most have
// little data and a few have up to 16 KiB.
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

// Compare runs the steps on new stores of two implementations and returns the first
// observable difference, or nil. It compares entries, their order and the classes of
// errors. It does not compare positions, because each store chooses its own; it
// checks that they increase. It closes both stores before it returns.
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

// observe runs a step and returns its observable result as text: the entries without
// positions and the class of the error.
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

// place returns the position of the nth entry of the log. For n = 0 it returns the
// start. If the log has fewer entries, it returns the position of the last one.
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

// errorClass returns the text of the sentinel in an error. Stores word their errors
// differently, and callers match only sentinels. An unknown error is returned in
// full; nil is "<nil>".
func errorClass(err error) string {
	for _, known := range []error{events.ErrConflict, events.ErrBadRecord, events.ErrClosed, errStop} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

// formatEntries returns one line for each entry and then the class of the final
// error. No correct store yields an entry whose position does not increase;
// formatEntries adds a text before such an entry, so that the result differs.
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

// TestSame compares two implementations on random histories, one for each seed from 1 to
// the argument seeds. left and right return harnesses over new storage and are called
// for every run. The first history with a difference fails the test: TestSame shrinks
// the history and prints the seed, the remaining steps and the difference.
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

// shrink returns a shorter list of steps for which the function fails still returns
// true. It tries to remove each half of the list, then each quarter, down to single
// steps. It keeps a removal if fails returns true for the remaining steps. The result is
// not always the shortest list. shrink calls fails O(n) times for each size of the
// removed parts.
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

// formatSteps returns the steps as text, one on each line, indented.
func formatSteps(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("  " + s.String() + "\n")
	}
	return b.String()
}
