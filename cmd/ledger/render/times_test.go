package render

import (
	"testing"
	"time"
)

// zoneOf returns a time zone, and skips the test on a machine without a zone database.
func zoneOf(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Skipf("the machine has no time zone %s: %v", name, err)
	}
	return zone
}

// ParseTime takes each form in the zone of the user, also on days on which clocks are set
// forward or back. The first time is the bound of --since, the last one that of --until.
func TestTimesAreReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	berlin, saoPaulo := zoneOf(t, "Europe/Berlin"), zoneOf(t, "America/Sao_Paulo")
	for _, c := range []struct {
		zone         *time.Location
		now, text    string
		since, until string
	}{
		{time.UTC, "2026-09-10T12:00:00Z", "10m", "2026-09-10T11:50:00Z", ""},
		{time.UTC, "2026-09-10T12:00:00Z", "10m ago", "2026-09-10T11:50:00Z", ""},
		{time.UTC, "2026-09-10T12:00:00Z", "36h", "2026-09-09T00:00:00Z", ""},
		{time.UTC, "2026-09-10T12:00:00Z", "7d", "2026-09-03T12:00:00Z", ""},
		{time.UTC, "2026-09-10T12:00:00Z", "1w", "2026-09-03T12:00:00Z", ""},
		{time.UTC, "2026-09-10T12:00:00Z", "now", "2026-09-10T12:00:00Z", ""},
		{berlin, "2026-09-10T12:00:00Z", "2026-09-01T02:00:00+02:00", "2026-09-01T00:00:00Z", ""},
		{berlin, "2026-09-10T12:00:00Z", "14:00", "2026-09-10T12:00:00Z", ""},    // the present minute
		{berlin, "2026-09-10T12:00:00Z", "14:00:01", "2026-09-09T12:00:01Z", ""}, // not yet today
		{berlin, "2026-09-10T12:00:00Z", "08:30", "2026-09-10T06:30:00Z", ""},
		{berlin, "2026-09-10T22:30:00Z", "00:15", "2026-09-10T22:15:00Z", ""}, // in Berlin it is the next day
		{berlin, "2026-09-10T12:00:00Z", "2026-09-01 14:00", "2026-09-01T12:00:00Z", ""},
		{berlin, "2026-09-10T12:00:00Z", "2026-09-01", "2026-08-31T22:00:00Z", "2026-09-01T22:00:00Z"},
		{berlin, "2026-09-10T12:00:00Z", "today", "2026-09-09T22:00:00Z", "2026-09-10T22:00:00Z"},
		{berlin, "2026-09-10T12:00:00Z", "yesterday", "2026-09-08T22:00:00Z", "2026-09-09T22:00:00Z"},
		// A day of 23 hours, and a time that no clock shows.
		{berlin, "2026-03-30T12:00:00Z", "yesterday", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{berlin, "2026-03-29T12:00:00Z", "02:30", "2026-03-29T01:00:00Z", ""},
		{berlin, "2026-03-29T12:00:00Z", "01:59", "2026-03-29T00:59:00Z", ""},
		{berlin, "2026-03-29T12:00:00Z", "03:00", "2026-03-29T01:00:00Z", ""},
		{berlin, "2026-03-29T12:00:00Z", "14:00", "2026-03-29T12:00:00Z", ""},
		{berlin, "2026-03-29T11:00:00Z", "14:00", "2026-03-28T13:00:00Z", ""},
		// A day of 25 hours, and a time that clocks show twice.
		{berlin, "2026-10-26T12:00:00Z", "yesterday", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{berlin, "2026-10-25T12:00:00Z", "02:30", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		{berlin, "2026-10-25T12:00:00Z", "03:00", "2026-10-25T02:00:00Z", ""},
		{berlin, "2026-10-25T12:00:00Z", "01:59:59", "2026-10-24T23:59:59Z", ""},
		// A day without a midnight.
		{saoPaulo, "2018-11-04T15:00:00Z", "today", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{saoPaulo, "2018-11-05T15:00:00Z", "yesterday", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		a := &Printer{Now: func() time.Time { return now }, zone: c.zone}
		since, until, err := a.ParseTime(c.text)
		if c.until == "" {
			c.until = c.since
		}
		if got, end := since.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339); err != nil || got != c.since || end != c.until {
			t.Errorf("in %s at %s, %q is %s to %s, %v; want %s to %s", c.zone, c.now, c.text, got, end, err, c.since, c.until)
		}
	}
	a := &Printer{Now: time.Now}
	for _, text := range []string{"", "soon", "-5m", "9999999999d", "2026-13-01", "25:00", "14", "2026-09-01T", " ago"} {
		if got, _, err := a.ParseTime(text); err == nil {
			t.Errorf("parseTime(%q) = %v, want an error", text, got)
		}
	}
}

// wall inverts the conversion of a time to a zone: its first or last result is the original
// time, also on days on which clocks are set forward or back.
func TestWallClockTimesAreFoundAgain(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"} {
		a := &Printer{Now: time.Now, zone: zoneOf(t, zone)}
		for _, day := range []string{"2026-03-28", "2026-10-24", "2018-11-03", "2018-02-17", "2026-04-04", "2026-10-03"} {
			from, err := time.Parse(time.DateOnly, day)
			if err != nil {
				t.Fatal(err)
			}
			for at := from; at.Before(from.AddDate(0, 0, 3)); at = at.Add(10 * time.Minute) {
				shown := at.In(a.zone)
				first, last := a.wall(time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), 0, 0, time.UTC))
				if !first.Equal(at) && !last.Equal(at) {
					t.Errorf("in %s, what shows %s is found at %s and %s", zone, shown, first, last)
				}
			}
		}
	}
}

// ShortTime and LongTime format times in the local zone, or in UTC with --utc.
func TestTimesAreShownInTheLocalZone(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 9, 10, 12, 0, 0, 0, time.UTC)
	a := &Printer{Now: func() time.Time { return now }, zone: zoneOf(t, "Europe/Berlin")}
	at := now.Add(-3 * time.Minute)
	for shown, want := range map[string]string{
		a.ShortTime(at): "13:57:00", a.ShortTime(now.AddDate(0, 0, -1)): "Sep  9 14:00", a.ShortTime(now.AddDate(-1, 0, 0)): "2025-09-10",
		a.ShortTime(now.Add(10*time.Hour + 30*time.Minute)): "Sep 11 00:30", a.ShortTime(time.Time{}): "",
		a.LongTime(at): "2026-09-10 13:57:00.000 CEST (3 minutes ago)", a.LongTime(now.AddDate(-1, 0, 0)): "2025-09-10 14:00:00.000 CEST",
	} {
		if shown != want {
			t.Errorf("shown as %q, want %q", shown, want)
		}
	}
	a.UTC = true
	if got, want := a.LongTime(at), "2026-09-10 11:57:00.000 UTC (3 minutes ago)"; got != want {
		t.Errorf("with --utc it is %q, want %q", got, want)
	}
}
