package eventstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/settlement-ledger/ledger/domain/lawtest"
	"github.com/settlement-ledger/ledger/events"
)

// A Slice is the reference of every other law test, so it must keep each law itself.
func TestSliceKeepsEveryLaw(t *testing.T) {
	t.Parallel()
	Test(t, func(*testing.T) Harness { return SliceHarness() })
}

// A saboteur that several laws catch does not show that its own law's check works.
// The test runs every check on every saboteur.
func TestEverySaboteurIsCaughtByItsLawAlone(t *testing.T) {
	t.Parallel()
	lawtest.TestSuite(t, Laws())
	for _, victim := range Laws() {
		t.Run(victim.Name+" alone", func(t *testing.T) {
			t.Parallel()
			for _, law := range Laws() {
				if law.Name == victim.Name {
					continue
				}
				saboteur, err := victim.Saboteur(t.Context())
				if err == nil {
					err = law.Check(t.Context(), saboteur)
				}
				if err != nil {
					t.Errorf("the saboteur of %q is caught by another law: %v", victim.Name, err)
				}
			}
		})
	}
}

// A harness without CutPower skips exactly the law about power cuts.
func TestStorageWithoutPowerMakesOneLawNotApplicable(t *testing.T) {
	t.Parallel()
	for _, law := range Laws() {
		h := SliceHarness()
		h.CutPower = nil
		err, want := law.Check(t.Context(), h), law.Name == "acknowledged survives a power cut"
		if errors.Is(err, lawtest.ErrNotApplicable) != want || err != nil && !want {
			t.Errorf("law %q without power to cut = %v, want ErrNotApplicable only of the law about it", law.Name, err)
		}
	}
}

// Compare finds no difference between two correct stores. LEDGER_TEST_LONG raises the
// number of histories from 20 to 100.
func TestSameHistoryOnTwoSlices(t *testing.T) {
	t.Parallel()
	seeds := uint64(20)
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		seeds = 100
	}
	TestSame(t, seeds, SliceHarness, SliceHarness)
}

// Random histories find the saboteurs whose faults a single caller can observe, and
// shrink to at most six steps.
func TestHistoriesTellSaboteursFromTheSlice(t *testing.T) {
	t.Parallel()
	for law, saboteur := range map[string]func() Harness{
		"all or none": appendsValidPrefix, "stale append conflicts": appendsAcrossGaps,
		"repeated append is a no-op": forgetsOlderAppends, "beyond the end is empty": readsFromStartBeyondEnd,
	} {
		differs := func(steps []Step) bool {
			return Compare(t.Context(), steps, SliceHarness(), saboteur()) != nil
		}
		seed := uint64(1)
		for ; seed <= 20 && !differs(RandomHistory(seed, 60)); seed++ {
		}
		if seed > 20 {
			t.Errorf("no history of 20 tells the saboteur of %q from the slice", law)
			continue
		}
		if steps := shrink(RandomHistory(seed, 60), differs); len(steps) > 6 || !differs(steps) {
			t.Errorf("the history that tells the saboteur of %q shrinks to %d steps, want few:\n%s", law, len(steps), formatSteps(steps))
		}
	}
}

// A seed always gives the same steps, and 300 steps include each kind of step and
// each result of an append.
func TestHistoriesAreTheSameForASeedAndHoldEverything(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	b, err := begin(t.Context(), SliceHarness())
	if err != nil {
		t.Fatal(err)
	}
	again := RandomHistory(3, 300)
	for i, step := range RandomHistory(3, 300) {
		if again[i].String() != step.String() {
			t.Fatalf("step %d of seed 3 is %s and then %s", i, step, again[i])
		}
		expectedEntries := b.observe(t.Context(), step)
		if step.Do == "append" {
			seen[expectedEntries]++
		}
		seen[step.Do]++
	}
	for _, want := range []string{"<nil>", events.ErrConflict.Error(), events.ErrBadRecord.Error(), "read", "all", "follow", "reopen"} {
		if seen[want] == 0 {
			t.Errorf("no step of 300 does or answers %q: %v", want, seen)
		}
	}
}

func ExampleLaw_Check() {
	for _, law := range Laws()[:2] {
		err := law.Check(context.Background(), SliceHarness())
		fmt.Fprintln(os.Stdout, law.Name+":", err)
	}
	// Output:
	// reads back in order: <nil>
	// all or none: <nil>
}
