package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// A watched is an app whose standard error a person looks at, and its clock.
func watched(now *time.Time) (*app, *bytes.Buffer) {
	var told bytes.Buffer
	return &app{err: &told, watched: true, now: func() time.Time { return *now }}, &told
}

// shownLast returns the line that a terminal shows.
func shownLast(told *bytes.Buffer) string {
	text := told.String()
	return text[strings.LastIndex(text, "\x1b[K")+len("\x1b[K"):]
}

func TestAProgressTellsHowFarHowFastAndHowLong(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	a, told := watched(&now)
	p := a.progress()
	p.show("copy", inRecords, 100, 1000, 4000) // goes on from a quarter
	if told.Len() > 0 {
		t.Errorf("at once it shows %q, want nothing", told)
	}
	now = now.Add(10 * time.Second)
	p.show("copy", inRecords, 300, 2000, 4000)
	if want := "copy     ████████████░░░░░░░░░░░░  50%  300 records, 20 records/s, 20s left"; shownLast(told) != want {
		t.Errorf("half way it shows %q, want %q", shownLast(told), want)
	}
	shown := told.Len()
	now = now.Add(showEach - 1)
	p.show("copy", inRecords, 301, 2001, 4000)
	if told.Len() != shown {
		t.Errorf("it shows more than a few times a second: %q", told)
	}
	now = now.Add(time.Second)
	p.bytes("outputs", 0, 8<<20)
	if want := "outputs  ░░░░░░░░░░░░░░░░░░░░░░░░   0%  0 B"; shownLast(told) != want {
		t.Errorf("at the beginning of the next part it shows %q, want %q", shownLast(told), want)
	}
	now = now.Add(2 * time.Second)
	p.bytes("outputs", 2<<20, 8<<20)
	if want := "outputs  ██████░░░░░░░░░░░░░░░░░░  25%  2 MiB, 1 MiB/s, 6s left"; shownLast(told) != want {
		t.Errorf("it shows %q, want %q", shownLast(told), want)
	}
	now = now.Add(time.Second)
	p.bytes("outputs", 9<<20, 8<<20)
	if !strings.Contains(shownLast(told), "████████████████████████ 100%") {
		t.Errorf("behind the end it shows %q, want all", shownLast(told))
	}
	p.end()
	if shownLast(told) != "" || !strings.HasSuffix(told.String(), "\r\x1b[K") {
		t.Errorf("at the end it leaves %q", shownLast(told))
	}
	shown = told.Len()
	if p.end(); told.Len() != shown {
		t.Errorf("it ends twice: %q", told)
	}
}

func TestAProgressIsSilentWhereNobodyLooks(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	a, told := watched(&now)
	a.watched = false
	p := a.progress()
	now = now.Add(time.Minute)
	p.show("copy", inRecords, 1, 1, 2)
	p.end()
	a.watched = true
	p = a.progress()
	now = now.Add(time.Minute)
	p.show("copy", inRecords, 1, 1, 0) // of what nobody knows
	p.end()
	if told.Len() > 0 {
		t.Errorf("it shows %q, want nothing", told)
	}
}

// What embedded.Check tells is bytes of files, and else records.
func TestAProgressTellsBytesFromRecords(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	a, told := watched(&now)
	p := a.progress()
	for part, says := range map[string]string{"files": "1 MiB", "records": "1048576 records"} {
		now = now.Add(time.Second)
		if p.checking(part, 1<<20, 2<<20); !strings.Contains(shownLast(told), " 50%  "+says) {
			t.Errorf("of %s it shows %q, want %s", part, shownLast(told), says)
		}
	}
}

// The line fits the terminal: one that is too long would not be taken away.
func TestAProgressFitsTheTerminal(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	a, told := watched(&now)
	p := a.progress()
	now = now.Add(time.Minute)
	p.show(strings.Repeat("very long ", 20), inRecords, 1, 1, 2)
	if n := len([]rune(shownLast(told))); n != 79 {
		t.Errorf("it shows %d columns, want 79 of 80", n)
	}
}
