package bench

import (
	"fmt"
)

// Limits says in sentences what limits the store on this disk and machine, as
// far as the rows that tell were measured.
func (r *Report) Limits() (sentences []string) {
	say := func(format string, args ...any) { sentences = append(sentences, fmt.Sprintf(format, args...)) }
	if p50 := r.Median("append-1", "file", Middle); p50 > 0 {
		say("Disk: to write %d bytes and sync them takes %s µs at the median and %s µs at the 99th percentile: no store can take more than %s events/s from one writer here.",
			eventSize, number(p50), number(r.Median("append-1", "file", Tail)), number(1e6/p50))
	}
	if l := r.loading("append-1"); l.rate > 0 {
		say("One writer: %s events/s. %s", number(l.rate), l.verdict(r.Cores, "Appends from several sessions at once share a sync."))
	}
	if l := r.loading("append-64"); l.rate > 0 {
		say("64 writers: %s events/s. %s", number(l.rate), l.verdict(r.Cores, "More writers at once share a sync."))
	}
	if one, all := r.Median("rebuild", "one", Rate), r.Median("rebuild", "all", Rate); one > 0 && all > 0 {
		say("Rebuild: %s events/s on one core and %s on %d: %s.", number(one), number(all), r.Cores, gain(all/one, r.Cores))
	}
	return sentences
}

// A loading is how a store took appends: how many, what of the time the floor
// spent in syncs for the same task, and how many processors were at work.
type loading struct{ rate, floor, syncing, busy float64 }

func (r *Report) loading(trial string) loading {
	return loading{
		rate:  r.Median(trial, "ledger", Rate),
		floor: r.Median(trial, "file", Rate), syncing: r.Median(trial, "file", Syncing),
		busy: r.Median(trial, "ledger", Busy),
	}
}

// The shares from which something limits.
const (
	busyLimit    = 0.8
	syncingLimit = 0.6
)

// verdict says what limits: the processors, if hardly any is idle; the disk, if
// a bare file waits for it most of the time and the store is not much slower;
// else neither.
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

func gain(factor float64, cores int) string {
	if factor >= 0.75*float64(cores) {
		return "the processor limits it, and more cores help"
	}
	return fmt.Sprintf("%s times as fast; what one core does for all others limits it", number(factor))
}
