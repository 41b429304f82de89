package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAPercentileIsTheLeastThatSoManyDoNotExceed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		latencies := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 50).Draw(t, "ns"))
		}), 1, 300).Draw(t, "latencies")
		percent := rapid.IntRange(1, 100).Draw(t, "percent")
		got := percentile(slices.Clone(latencies), percent)
		share := func(limit time.Duration) int { // of those that do not exceed it, in hundredths
			n := 0
			for _, l := range latencies {
				if l <= limit {
					n++
				}
			}
			return n * 100
		}
		if share(got) < percent*len(latencies) || share(got-1) >= percent*len(latencies) {
			t.Fatalf("percentile(%v, %d) = %d", latencies, percent, got)
		}
	})
	if percentile(nil, 99) != 0 || median(nil) != 0 {
		t.Error("of nothing, the percentile and the median are 0")
	}
}

func TestAVerdictNamesWhatLimits(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]loading{
		"The processor limits it: 1.90 of 2 cores":  {rate: 100, floor: 150, syncing: 0.9, busy: 1.9},
		"The disk limits it: a bare file spends 90": {rate: 100, floor: 150, syncing: 0.9, busy: 0.4},
		"Neither disk nor processor alone":          {rate: 100, floor: 400, syncing: 0.9, busy: 0.4},
	} {
		if got := l.verdict(2, "Cure."); !strings.HasPrefix(got, want) {
			t.Errorf("%+v: %q, want it to begin with %q", l, got, want)
		}
	}
}

func TestANumberHasThreeDigits(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]string{0: "0.00", 0.0012: "0.0012", 0.904: "0.90", 9.994: "9.99", 12.34: "12.3", 5012.4: "5012"} {
		if got := number(value); got != want {
			t.Errorf("number(%v) = %q, want %q", value, got, want)
		}
	}
}
