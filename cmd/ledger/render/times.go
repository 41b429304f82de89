package render

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// local returns t in the time zone of p.
func (p *Printer) local(t time.Time) time.Time { return t.In(p.location()) }

// location returns the time zone in which p formats and parses times: the local zone, or UTC
// with --utc.
func (p *Printer) location() *time.Location {
	switch {
	case p.UTC:
		return time.UTC
	case p.zone != nil:
		return p.zone
	}
	return time.Local
}

// ShortTime formats a time for a table: the time of day if it is today, day and
// minute if it is less than half a year away, and otherwise the date. It returns an
// empty string for the zero time.
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

// Milliseconds formats a time with its date, to the millisecond.
func (p *Printer) Milliseconds(t time.Time) string {
	return p.local(t).Format("2006-01-02 15:04:05.000")
}

// LongTime formats a time with its date and zone, to the millisecond. It appends the
// text of Ago in parentheses if there is one. It returns an empty string for the zero
// time.
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

// Ago formats the time between t and now, such as "3 minutes ago" or "1 hour from now".
// It returns an empty string for the zero time, and if t is a month or more away.
func (p *Printer) Ago(t time.Time) string {
	if now := p.Now(); !t.IsZero() && now.Sub(t).Abs() < humanize.Month {
		return humanize.RelTime(t, now, "ago", "from now")
	}
	return ""
}

// TimesHelp lists examples of texts that ParseTime takes, for help and error texts.
const TimesHelp = "14:00, yesterday, 2026-09-01, '2026-09-01 14:00' or how long ago, as 10m or 2d"

// The layouts of a date, a time of day and both that ParseTime accepts.
var (
	dayForms   = []string{time.DateOnly}
	clockForms = []string{"15:04", time.TimeOnly}
	bothForms  = []string{time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"}
)

// ParseTime parses a time as people write it: RFC 3339; a date, a time of day or both
// in the zone of p; today, yesterday or now; or an age such as 10m, 36h, 7d or 2w. A
// time of day alone is its latest occurrence that is not in the future. An error
// lists TimesHelp.
//
// It returns the first and the last time that the text may mean. For a date these are
// its midnight and the next one. For a time that occurs twice, because clocks are set
// back, they are both occurrences. For a time that clocks skip, both are the time of
// the skip.
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

// parsed parses text as a time in UTC, by the first layout in forms that matches. The
// bool reports whether a layout matches.
func parsed(text string, forms []string) (time.Time, bool) {
	for _, form := range forms {
		if t, err := time.Parse(form, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// span parses a duration that is not negative. The bool reports whether text is such a
// duration. Besides the units of time.ParseDuration it accepts a whole number of days
// (d) of 24 hours or weeks (w) of 7 days.
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

// wall returns the first and the last time at which a clock in the zone of p shows the
// date and the time of day of t. The two differ if the clock is set back and so shows
// this time of day twice. If the clock is set forward and never shows it, both are the
// time of that change.
//
// time.Date resolves such a time in an unspecified way. wall therefore takes the zone
// offsets in effect before, at and after it, up to two days away. It keeps the
// candidates at which the clock shows t.
func (p *Printer) wall(t time.Time) (first, last time.Time) {
	const show = "2006-01-02T15:04:05"
	in := p.location()
	near := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, in)
	start, end := near.ZoneBounds()
	for _, at := range []time.Time{start.Add(-1), near, end} {
		// This also skips the zero Time, which ZoneBounds returns for a zone without
		// that bound.
		if at.Before(near.AddDate(0, 0, -2)) || at.After(near.AddDate(0, 0, 2)) {
			continue
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
