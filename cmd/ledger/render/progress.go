package render

import (
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// A ProgressBar is a progress bar on one line of the standard error: the current part, a
// bar, the amount done, the rate and the estimated time left. It writes only if the
// standard error is a terminal. One goroutine uses it, and calls End. The library
// redraws the line five times a second on a goroutine of its own, which End joins.
type ProgressBar struct {
	// lines draws the line. It is nil if the standard error is no terminal, or after
	// End.
	lines *mpb.Progress
	// bar is the bar of the current part, whose name is part, or nil before the
	// first.
	bar  *mpb.Bar
	part string
	// from is the amount done at the first Show of the part.
	from uint64
	// done is the amount of the last Show, which the bar reads on another goroutine.
	done *atomic.Int64
}

// A unit formats an amount for a person.
type unit func(int64) string

// Records is the unit of amounts that count records.
func Records(n int64) string { return Count(int(n), "record") }

// barWidth is the width of the bar in columns.
const barWidth = 24

// Progress returns a progress bar on the standard error, which appears at the first Show. The
// caller calls End.
func (p *Printer) Progress() *ProgressBar {
	shown := &ProgressBar{}
	if p.ErrTerminal && p.ErrFile != nil {
		shown.lines = mpb.New(mpb.WithOutput(p.ErrFile), mpb.WithWidth(barWidth), mpb.WithRefreshRate(200*time.Millisecond))
	}
	return shown
}

// Show updates the progress of a part. If part is a new name, Show first begins a bar
// for it. The bar is filled to the share done of total, in any measure. The text beside
// the bar shows amount and the rate of its growth, formatted by u. Show ignores a call
// with the total 0.
func (p *ProgressBar) Show(part string, u unit, amount int64, done, total uint64) {
	if p.lines == nil || total == 0 {
		return
	}
	done = min(done, total)
	if p.bar == nil || part != p.part {
		p.drop()
		p.begin(part, u, amount, done, total)
	}
	p.done.Store(amount)
	p.bar.SetCurrent(int64(done - p.from))
}

// begin adds the bar of a part. amount and done are the progress that already exists,
// for example from an earlier run. The rate and the estimated time count only later
// progress.
func (p *ProgressBar) begin(part string, u unit, amount int64, done, total uint64) {
	p.part, p.from, p.done = part, done, &atomic.Int64{}
	begun, counted := time.Now(), p.done
	told := decor.Any(func(decor.Statistics) string {
		now := counted.Load()
		return "  " + u(now) + ", " + u(int64(float64(now-amount)/time.Since(begun).Seconds())) + "/s, "
	})
	p.bar = p.lines.New(max(1, int64(total-done)), mpb.BarStyle().Lbound("").Filler("█").Tip("").Padding("░").Rbound(""), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(part, decor.WC{W: 9, C: decor.DindentRight})),
		mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), told, decor.AverageETA(decor.ET_STYLE_GO), decor.Name(" left")))
}

// Bytes updates the progress of a part whose amount and measure are bytes.
func (p *ProgressBar) Bytes(part string, done, total int64) {
	p.Show(part, Bytes, done, uint64(done), uint64(total))
}

// Check updates the progress of integrity.Check, which counts bytes in the part "files" and
// records in its other parts.
func (p *ProgressBar) Check(part string, done, total int64) {
	u := unit(Records)
	if part == "files" {
		u = Bytes
	}
	p.Show(part, u, done, uint64(done), uint64(total))
}

// drop removes the bar of the current part.
func (p *ProgressBar) drop() {
	if p.bar != nil {
		p.bar.Abort(true)
		p.bar.Wait()
		p.bar = nil
	}
}

// End removes the line. A later Show has no effect.
func (p *ProgressBar) End() {
	if p.lines != nil {
		p.drop()
		p.lines.Wait()
		p.lines = nil
	}
}
