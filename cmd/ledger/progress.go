package main

import (
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// A progress shows how far a long task is, on one line of the standard error: the
// current part, a bar, the amount done, the rate and the estimated time left. It is
// silent where the standard error is no terminal. Its owner ends it.
type progress struct {
	lines *mpb.Progress // nil: silent
	bar   *mpb.Bar      // nil: no part has begun
	part  string
	from  uint64 // how much of the part was done when it began
	done  *atomic.Int64
}

// A unit tells an amount for a person.
type unit func(int64) string

func inRecords(n int64) string { return count(int(n), "record") }

const barWidth = 24

func (a *app) progress() *progress {
	p := &progress{}
	if a.watched && a.faults != nil {
		p.lines = mpb.New(mpb.WithOutput(a.faults), mpb.WithWidth(barWidth), mpb.WithRefreshRate(200*time.Millisecond))
	}
	return p
}

// show says how much of a part is done: an amount, and done of total by whatever
// measure. Nothing is shown of a total that is not above 0.
func (p *progress) show(part string, u unit, amount int64, done, total uint64) {
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

// begin adds the bar of a part, of which done units were finished by an earlier run.
// The rate, and so the estimated time, counts the units of this run only.
func (p *progress) begin(part string, u unit, amount int64, done, total uint64) {
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

// bytes shows a part that is counted and measured in bytes.
func (p *progress) bytes(part string, done, total int64) {
	p.show(part, size, done, uint64(done), uint64(total))
}

// checking shows the progress of embedded.Check: bytes of files, otherwise records.
func (p *progress) checking(part string, done, total int64) {
	u := unit(inRecords)
	if part == "files" {
		u = size
	}
	p.show(part, u, done, uint64(done), uint64(total))
}

// drop takes the bar of a part away.
func (p *progress) drop() {
	if p.bar != nil {
		p.bar.Abort(true)
		p.bar.Wait()
		p.bar = nil
	}
}

// end takes the line away. Nothing is shown after that.
func (p *progress) end() {
	if p.lines != nil {
		p.drop()
		p.lines.Wait()
		p.lines = nil
	}
}
