package render

import (
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// A Progress shows how far a long task is, on one line of the standard error: the
// current part, a bar, the amount done, the rate and the estimated time left. It is
// silent where the standard error is no terminal. Its owner ends it.
type Progress struct {
	lines *mpb.Progress // nil: silent
	bar   *mpb.Bar      // nil: no part has begun
	part  string
	from  uint64 // how much of the part was done when it began
	done  *atomic.Int64
}

// A unit tells an amount for a person.
type unit func(int64) string

func Records(n int64) string { return Count(int(n), "record") }

const barWidth = 24

func (p *Printer) Progress() *Progress {
	shown := &Progress{}
	if p.ErrTerminal && p.ErrFile != nil {
		shown.lines = mpb.New(mpb.WithOutput(p.ErrFile), mpb.WithWidth(barWidth), mpb.WithRefreshRate(200*time.Millisecond))
	}
	return shown
}

// Show says how much of a part is done: an amount, and done of total by whatever
// measure. Nothing is shown of a total that is not above 0.
func (p *Progress) Show(part string, u unit, amount int64, done, total uint64) {
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
func (p *Progress) begin(part string, u unit, amount int64, done, total uint64) {
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

// Bytes shows a part that is counted and measured in bytes.
func (p *Progress) Bytes(part string, done, total int64) {
	p.Show(part, Bytes, done, uint64(done), uint64(total))
}

// Check shows the progress of embedded.Check: bytes of files, otherwise records.
func (p *Progress) Check(part string, done, total int64) {
	u := unit(Records)
	if part == "files" {
		u = Bytes
	}
	p.Show(part, u, done, uint64(done), uint64(total))
}

// drop takes the bar of a part away.
func (p *Progress) drop() {
	if p.bar != nil {
		p.bar.Abort(true)
		p.bar.Wait()
		p.bar = nil
	}
}

// End takes the line away. Nothing is shown after that.
func (p *Progress) End() {
	if p.lines != nil {
		p.drop()
		p.lines.Wait()
		p.lines = nil
	}
}
