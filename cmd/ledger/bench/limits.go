package bench

import (
	"fmt"
)

// Limits returns sentences about the bottleneck of the store on this machine. It
// leaves out the sentences whose rows were not measured.
func (r *Report) Limits() (sentences []string) {
	say := func(format string, args ...any) { sentences = append(sentences, fmt.Sprintf(format, args...)) }
	if p50 := r.median("append-1", "file", Middle); p50 > 0 {
		say("Disk: to write %d bytes and sync them takes %s µs at the median and %s µs at the 99th percentile: no store can take more than %s events/s from one writer here.",
			eventSize, number(p50), number(r.median("append-1", "file", Tail)), number(1e6/p50))
	}
	if l := r.loading("append-1"); l.rate > 0 {
		say("One writer: %s events/s. %s", number(l.rate), l.verdict(r.Cores, "Appends from several sessions at once share a sync."))
	}
	if l := r.loading("append-64"); l.rate > 0 {
		say("64 writers: %s events/s. %s", number(l.rate), l.verdict(r.Cores, "More writers at once share a sync."))
	}
	if one, all := r.median("rebuild", "one", Rate), r.median("rebuild", "all", Rate); one > 0 && all > 0 {
		say("Rebuild: %s events/s on one core and %s on %d: %s.", number(one), number(all), r.Cores, gain(all/one, r.Cores))
	}
	return sentences
}

// A loading holds medians of an append trial: rate, the store's events per second;
// floor, the events per second of the plain file that the store is compared with;
// syncing, the share of time that the plain file spent in syncs; and busy, the number of
// processors that were busy while the store ran.
type loading struct{ rate, floor, syncing, busy float64 }

// loading returns the medians of the trial with this name, or zeros if the trial was not
// measured.
func (r *Report) loading(trial string) loading {
	return loading{
		rate:  r.median(trial, "ledger", Rate),
		floor: r.median(trial, "file", Rate), syncing: r.median(trial, "file", Syncing),
		busy: r.median(trial, "ledger", Busy),
	}
}

// The thresholds above which the processor or the disk counts as the bottleneck.
const (
	busyLimit    = 0.8 // share of all processors
	syncingLimit = 0.6 // share of the time of the floor
)

// verdict returns a sentence that names the bottleneck. It is the processor if at least
// the share busyLimit of all cores is busy. Otherwise it is the disk if the plain file
// spends at least the share syncingLimit of its time in syncs and the store reaches half
// the rate of the plain file. Otherwise it is neither. cure is advice that verdict
// appends if the disk is the bottleneck.
func (l loading) verdict(cores int, cure string) string {
	share := l.busy / float64(cores)
	switch {
	case share >= busyLimit:
		return fmt.Sprintf("The processor limits it: %s of %d cores were at work. Faster or more cores help; a faster disk does not.", number(l.busy), cores)
	case l.syncing >= syncingLimit && l.rate >= l.floor/2:
		return fmt.Sprintf("The disk limits it: a bare file spends %.0f %% of the time in syncs and takes %s events/s; %s of %d cores were at work. %s",
			100*l.syncing, number(l.floor), number(l.busy), cores, cure)
	}
	return fmt.Sprintf("Neither disk nor processor alone limits it: a bare file takes %s events/s, %.0f %% of the time in syncs; %s of %d cores were at work. The way between the writers and the disk does.",
		number(l.floor), 100*l.syncing, number(l.busy), cores)
}

// gain returns the part of a sentence that names the bottleneck of a rebuild. factor is
// the rebuild's rate on all cores divided by its rate on one core.
func gain(factor float64, cores int) string {
	if factor >= 0.75*float64(cores) {
		return "the processor limits it, and more cores help"
	}
	return fmt.Sprintf("%s times as fast; what one core does for all others limits it", number(factor))
}
