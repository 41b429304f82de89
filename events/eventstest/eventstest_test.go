package eventstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/events"
)

func TestSliceKeepsEveryLaw(t *testing.T) {
	t.Parallel()
	Test(t, func(*testing.T) Harness { return SliceHarness() })
}

func TestEverySaboteurIsCaughtByItsLawAlone(t *testing.T) {
	t.Parallel()
	for victim, sabotage := range saboteurs() {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			known := false
			for _, law := range Laws() {
				err := law.Check(t.Context(), sabotage())
				switch {
				case law.Name != victim && err != nil:
					t.Errorf("the saboteur of %q is caught by another law: %v", victim, err)
				case law.Name == victim && err == nil:
					t.Errorf("the saboteur of %q is not caught", victim)
				case law.Name == victim && !strings.Contains(err.Error(), law.Sentence):
					t.Errorf("error %q does not quote the sentence %q", err, law.Sentence)
				case errors.Is(err, ErrHangs):
					t.Errorf("the saboteur of %q is caught only by waiting: %v", victim, err)
				case law.Name == victim:
					t.Logf("caught: %v", err)
				}
				known = known || law.Name == victim
			}
			if !known {
				t.Errorf("there is a saboteur of %q and no such law", victim)
			}
		})
	}
}

func TestLawsAreNamedOnceAndSayWhatHolds(t *testing.T) {
	t.Parallel()
	var names []string
	for _, law := range Laws() {
		if slices.Contains(names, law.Name) || law.Name == "" || !strings.HasSuffix(law.Sentence, ".") {
			t.Errorf("law %q: %q: want one name and a whole sentence", law.Name, law.Sentence)
		}
		names = append(names, law.Name)
	}
}

func TestStorageWithoutPowerMakesOneLawNotApplicable(t *testing.T) {
	t.Parallel()
	for _, law := range Laws() {
		h := SliceHarness()
		h.CutPower = nil
		err, want := law.Check(t.Context(), h), law.Name == "acknowledged survives a power cut"
		if errors.Is(err, ErrNotApplicable) != want || err != nil && !want {
			t.Errorf("law %q without power to cut = %v, want ErrNotApplicable only of the law about it", law.Name, err)
		}
	}
}

func TestReportHasALineForEachLaw(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Report(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, law := range Laws() {
		line := "law " + law.Name + ": " + law.Sentence + " — saboteur caught\n"
		if !strings.Contains(out.String(), line) {
			t.Errorf("Report writes no line %q", line)
		}
	}
	t.Log("\n" + out.String())
}

func TestSameHistoryOnTwoSlices(t *testing.T) {
	t.Parallel()
	seeds := uint64(20)
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		seeds = 100
	}
	TestSame(t, seeds, SliceHarness, SliceHarness)
}

func TestHistoriesTellSaboteursFromTheSlice(t *testing.T) {
	t.Parallel()
	for _, law := range []string{"all or none", "stale append conflicts", "repeated append is a no-op", "beyond the end is empty"} {
		differs := func(steps []Step) bool {
			return Compare(t.Context(), steps, SliceHarness(), saboteurs()[law]()) != nil
		}
		seed := uint64(1)
		for ; seed <= 20 && !differs(RandomHistory(seed, 60)); seed++ {
		}
		if seed > 20 {
			t.Errorf("no history of 20 tells the saboteur of %q from the slice", law)
			continue
		}
		if steps := shrink(RandomHistory(seed, 60), differs); len(steps) > 6 || !differs(steps) {
			t.Errorf("the history that tells the saboteur of %q shrinks to %d steps, want few:\n%s", law, len(steps), tell(steps))
		}
	}
}

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
		answer := b.observe(t.Context(), step)
		if step.Do == "append" {
			seen[answer]++
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
