package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// A progress tells a person who waits how far a long work is, on one line of the
// standard error: the part that is under way, a bar, how much was done and how
// fast, and how long the part still takes. Where no person looks it is silent.
type progress struct {
	app   *app
	shown time.Time
	any   bool

	part  string
	begun time.Time // the part,
	first way       // and how far that was then
}

// A way is how far a part has come: so much of what is counted, and what
// fraction of all, which can be told by another measure.
type way struct {
	amount   int64
	fraction float64
}

// A unit tells an amount for a person.
type unit func(int64) string

func inRecords(n int64) string { return count(int(n), "record") }

// The pace of a progress.
const (
	showEach = 200 * time.Millisecond
	barWidth = 24
	leastWay = 0.01 // of the whole, before how long it takes is told
)

func (a *app) progress() *progress { return &progress{app: a, shown: a.now()} }

// show says how much of a part is done, at most a few times a second: an amount,
// and done of total by whatever measure. Nothing is shown of a total that is not
// above 0.
func (p *progress) show(part string, u unit, amount int64, done, total uint64) {
	if !p.app.watched || total == 0 {
		return
	}
	now, at := p.app.now(), way{amount, min(1, float64(done)/float64(total))}
	if part != p.part {
		p.part, p.begun, p.first = part, now, at
	}
	if now.Sub(p.shown) < showEach {
		return
	}
	p.shown, p.any = now, true
	fmt.Fprint(p.app.err, "\r\x1b[K", ansi.Truncate(p.line(u, at, now.Sub(p.begun)), p.width()-1, "…"))
}

// line returns what is shown of a part that has run for a while.
func (p *progress) line(u unit, at way, ran time.Duration) string {
	filled := int(at.fraction * barWidth)
	text := fmt.Sprintf("%-8s %s%s %3d%%  %s", p.part, strings.Repeat("█", filled), strings.Repeat("░", barWidth-filled), int(100*at.fraction), u(at.amount))
	if ran <= 0 {
		return text
	}
	text += ", " + u(int64(float64(at.amount-p.first.amount)/ran.Seconds())) + "/s"
	if came := at.fraction - p.first.fraction; came >= leastWay {
		left := time.Duration(math.Ceil(ran.Seconds()*(1-at.fraction)/came)) * time.Second
		text += ", " + left.String() + " left"
	}
	return text
}

// width returns how many columns the terminal has.
func (p *progress) width() int {
	if file, ok := p.app.err.(*os.File); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 80
}

// bytes shows a part that is counted and measured in bytes.
func (p *progress) bytes(part string, done, total int64) {
	p.show(part, size, done, uint64(done), uint64(total))
}

// checking shows what embedded.Check tells: bytes of files, and else records.
func (p *progress) checking(part string, done, total int64) {
	u := unit(inRecords)
	if part == "files" {
		u = size
	}
	p.show(part, u, done, uint64(done), uint64(total))
}

// end takes the line away.
func (p *progress) end() {
	if p.any {
		p.any = false
		fmt.Fprint(p.app.err, "\r\x1b[K")
	}
}
