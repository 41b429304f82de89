package render

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// local returns a time in the zone in which times are shown and read: that of the
// process, and with --utc UTC.
func (p *Printer) local(t time.Time) time.Time { return t.In(p.location()) }

func (p *Printer) location() *time.Location {
	switch {
	case p.UTC:
		return time.UTC
	case p.zone != nil:
		return p.zone
	}
	return time.Local
}

// ShortTime returns a time as tables have it: the time of the day today, day and minute
// within half a year, and else the date.
func (p *Printer) ShortTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	now := p.local(p.Now())
	t = p.local(t)
	const halfYear = 183 * 24 * time.Hour
	switch distance := now.Sub(t).Abs(); {
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format(time.TimeOnly)
	case distance < halfYear:
		return t.Format("Jan _2 15:04")
	}
	return t.Format(time.DateOnly)
}

// Milliseconds returns a time to the millisecond, with its date.
func (p *Printer) Milliseconds(t time.Time) string {
	return p.local(t).Format("2006-01-02 15:04:05.000")
}

// LongTime returns a time with its zone and, where that helps, how long it is past.
func (p *Printer) LongTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	text := p.Milliseconds(t) + p.local(t).Format(" MST")
	if past := p.Ago(t); past != "" {
		text += " (" + past + ")"
	}
	return text
}

// Ago returns how long a time is past, and nothing where that is over a month.
func (p *Printer) Ago(t time.Time) string {
	if now := p.Now(); !t.IsZero() && now.Sub(t).Abs() < humanize.Month {
		return humanize.RelTime(t, now, "ago", "from now")
	}
	return ""
}

const TimesHelp = "14:00, yesterday, 2026-09-01, '2026-09-01 14:00' or how long ago, as 10m or 2d"

// The forms in which a day, a time of the day and both are read.
var (
	dayForms   = []string{time.DateOnly}
	clockForms = []string{"15:04", time.TimeOnly}
	bothForms  = []string{time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"}
)

// ParseTime reads a time as people write it: RFC 3339; a date, a time or both in
// the zone of local; today, yesterday or now; or how long ago, such as 10m, 36h,
// 7d or 2w. It returns the first and the last time that is meant: a day is all of
// it, and a time that the clock shows twice, when it is set back, both. A time of
// the day alone is the last such time. One that the clock skips is when it does.
func (p *Printer) ParseTime(text string) (first, last time.Time, err error) {
	now := p.local(p.Now())
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, t, nil
	}
	if t, ok := parsed(text, bothForms); ok {
		first, last = p.wall(t)
		return first, last, nil
	}
	if t, ok := parsed(text, clockForms); ok {
		for days := 0; ; days++ {
			first, last = p.wall(time.Date(now.Year(), now.Month(), now.Day()-days, t.Hour(), t.Minute(), t.Second(), 0, time.UTC))
			if !first.After(now) {
				return first, last, nil
			}
		}
	}
	day, ok := parsed(text, dayForms)
	switch text {
	case "now":
		return now, now, nil
	case "today":
		day, ok = now, true
	case "yesterday":
		day, ok = time.Date(now.Year(), now.Month(), now.Day()-1, 0, 0, 0, 0, time.UTC), true
	}
	if ok {
		first, _ = p.wall(time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, time.UTC))
		_, last = p.wall(time.Date(day.Year(), day.Month(), day.Day()+1, 0, 0, 0, 0, time.UTC))
		return first, last, nil
	}
	if d, ok := span(strings.TrimSpace(strings.TrimSuffix(text, " ago"))); ok {
		return now.Add(-d), now.Add(-d), nil
	}
	return first, last, fmt.Errorf("%q is not a time: write %s", text, TimesHelp)
}

func parsed(text string, forms []string) (time.Time, bool) {
	for _, form := range forms {
		if t, err := time.Parse(form, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// span reads how long something is, with days of 24 hours and weeks of 7 days.
func span(text string) (time.Duration, bool) {
	for unit, hours := range map[string]uint64{"d": 24, "w": 7 * 24} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			if n, err := strconv.ParseUint(number, 10, 16); err == nil {
				text = strconv.FormatUint(n*hours, 10) + "h"
			}
		}
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

// wall returns the first and the last time at which the clocks of the zone show what
// t shows: two where they are set back over it, and where they skip it the time at
// which they do.
func (p *Printer) wall(t time.Time) (first, last time.Time) {
	const show = "2006-01-02T15:04:05"
	in := p.location()
	near := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, in)
	start, end := near.ZoneBounds()
	for _, at := range []time.Time{start.Add(-1), near, end} {
		if at.Before(near.AddDate(0, 0, -2)) || at.After(near.AddDate(0, 0, 2)) {
			continue // as the zero Time is: the zone has no bound there
		}
		_, offset := at.In(in).Zone()
		candidate := t.Add(-time.Duration(offset) * time.Second).In(in)
		if candidate.Format(show) != t.Format(show) {
			continue
		}
		if first.IsZero() || candidate.Before(first) {
			first = candidate
		}
		if candidate.After(last) {
			last = candidate
		}
	}
	if !first.IsZero() {
		return first, last
	}
	if near.Format(show) > t.Format(show) {
		return start, start
	}
	return end, end
}
