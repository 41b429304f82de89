package transcripts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/transcripts"
)

// The report counts the records, calls, results and errors of a file.
func TestCountsSayWhatTheFileHolds(t *testing.T) {
	t.Parallel()
	r := readFile(t, fixture(t, "garden.jsonl")).Report
	got := []int{r.Records, r.Calls, r.Results, r.Open, r.OrphanResults, r.Errors, len(r.RefusedLines)}
	if want := []int{40, 13, 14, 1, 1, 5, 0}; !slices.Equal(got, want) {
		t.Errorf("records, calls, results, open, orphans, errors, refused = %v, want %v", got, want)
	}
	if r.RefusedLines == nil {
		t.Error("the refused lines are nil, want an empty array")
	}
}

// A second import of a file adds no event, and the ledger has the counts of the
// report.
func TestImportingAgainAddsNothing(t *testing.T) {
	t.Parallel()
	data := fixture(t, "garden.jsonl")
	l := newLedger()
	read := readFile(t, data)
	added, err := read.Import(t.Context(), l)
	if err != nil || added == 0 || read.Report.Added != added {
		t.Fatalf("Import = %d, %v, and the report says %d", added, err, read.Report.Added)
	}
	wantCounts(t, factsOf(t, l), read.Report)
	if added := importAll(t, l, data); added != 0 {
		t.Errorf("importing again adds %d events, want 0", added)
	}
}

// Importing a file repeatedly while it grows gives the content of one import.
func TestEveryGrowingFileEndsTheSame(t *testing.T) {
	t.Parallel()
	grow(t, fixture(t, "garden.jsonl"), repeats(5, 1))
}

// A file that ends within a line is imported without that line, which the report
// lists as torn. Importing the whole file later adds the rest.
func TestTornLastLineLosesOnlyThatLine(t *testing.T) {
	t.Parallel()
	data := fixture(t, "garden.jsonl")
	whole := newLedger()
	importAll(t, whole, data)
	want := factsOf(t, whole)
	cuts := repeats(10, 40)
	for n := range cuts {
		cut := len(data) * n / cuts
		if data[max(cut-1, 0)] == '\n' || data[cut] == '\n' {
			continue
		}
		read := readFile(t, data[:cut])
		line := 1 + bytes.Count(data[:cut], []byte("\n"))
		refused := read.Report.RefusedLines
		if cut > 0 && (len(refused) != 1 || refused[0].Line != line || !strings.HasPrefix(refused[0].Reason, "torn")) {
			t.Fatalf("cut at byte %d refuses %v, want line %d as torn", cut, refused, line)
		}
		l := newLedger()
		if _, err := read.Import(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		importAll(t, l, data)
		sameFacts(t, fmt.Sprintf("cut at byte %d", cut), want, factsOf(t, l))
	}
}

// Two readings of a file give equal records with distinct IDs and the times of the
// file. A byte order mark, CRLF and empty lines make no difference.
func TestTheSameFileGivesTheSameRecords(t *testing.T) {
	t.Parallel()
	data := fixture(t, "garden.jsonl")
	entries := func(data []byte) (all []events.Record) {
		l := newLedger()
		importAll(t, l, data)
		for e, err := range l.Entries(t.Context(), events.Position{}) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e.Record)
		}
		return all
	}
	want := entries(data)
	if diff := cmp.Diff(want, entries(data), cmp.AllowUnexported(domain.EventID{})); diff != "" {
		t.Errorf("records of two readings differ:\n%s", diff)
	}
	crlf := append([]byte("\uFEFF"), bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n\r\n"))...)
	if diff := cmp.Diff(want, entries(crlf), cmp.AllowUnexported(domain.EventID{})); diff != "" {
		t.Errorf("a mark, CRLF and empty lines make a difference:\n%s", diff)
	}
	if refused := readFile(t, crlf).Report.RefusedLines; len(refused) > 0 {
		t.Errorf("a mark and CRLF have lines refused: %v", refused)
	}
	ids := map[domain.EventID]bool{}
	for _, r := range want {
		if ids[r.ID] {
			t.Errorf("%s %s has the ID of another event", r.Kind, r.ID)
		}
		ids[r.ID] = true
		if r.Time.Year() != 2026 {
			t.Errorf("%s happened at %s, want a time of the file", r.Kind, r.Time)
		}
	}
}

// The records of a sub-agent form a session whose parent is the session of the file,
// also if the file has no other session.
func TestASubagentIsASessionOfItsOwn(t *testing.T) {
	t.Parallel()
	l := newLedger()
	read := readFile(t, fixture(t, "garden.jsonl"))
	if _, err := read.Import(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	sessions := read.Sessions()
	if len(sessions) != 2 || sessions[0] != read.Session || read.Report.Session != read.Session {
		t.Fatalf("sessions are %v of %v, want that of the file and one more", sessions, read.Session)
	}
	child := factsOf(t, l).Sessions[sessions[1]]
	if child.Parent != read.Session || child.Origin.Kind != events.Imported || !strings.HasPrefix(child.Origin.Source, "s-1/") {
		t.Errorf("the subagent's session is %+v, want parent %v", child, read.Session)
	}
	alone := readFile(t, []byte(`{"type":"user","isSidechain":true,"agentId":"a1","sessionId":"s-1","uuid":"u","message":{"content":"count"}}`))
	if len(alone.Sessions()) != 1 || alone.Session != alone.Sessions()[0] {
		t.Errorf("a subagent's own file has sessions %v and is %v", alone.Sessions(), alone.Session)
	}
}

// Each tool that the file calls is registered by name in an observed layer, without a
// fingerprint; a tool with an invalid name is refused.
func TestToolsAreObservedByNameAlone(t *testing.T) {
	t.Parallel()
	l := newLedger()
	importAll(t, l, fixture(t, "garden.jsonl"))
	var names, refused []string
	for stream, all := range factsOf(t, l).Layers {
		opened := all[0].(events.LayerOpened)
		if events.LayerStream(opened.Layer) != stream || !opened.Observed || opened.Placement != domain.PerSession || opened.Session.IsZero() {
			t.Errorf("%s begins with %+v", stream, opened)
		}
		for _, e := range all[1:] {
			registered := e.(events.ToolsRegistered)
			for _, tool := range registered.Tools {
				names = append(names, string(tool.Name))
				if !tool.Fingerprint.IsZero() || tool.Input != nil || tool.Description != "" {
					t.Errorf("%+v says more than the file", tool)
				}
			}
			for _, r := range registered.Refused {
				refused = append(refused, r.Name)
			}
		}
	}
	slices.Sort(names)
	if want := []string{"Bash", "Grep", "Paint", "Read", "Task"}; !slices.Equal(names, want) || !slices.Equal(refused, []string{"not a name!"}) {
		t.Errorf("registered %q and refused %q, want %q", names, refused, want)
	}
}

// A file that contradicts events on record adds no event. The error names the file,
// the session and the revision.
func TestAContradictionIsRefusedWhole(t *testing.T) {
	t.Parallel()
	data := fixture(t, "garden.jsonl")
	for _, edit := range [][2]string{{"water the beds", "burn the beds"}, {"Exit code 1", "Exit code 2"}, {"I look at", "I stare at"}} {
		l := newLedger()
		importAll(t, l, data)
		read := readFile(t, bytes.ReplaceAll(data, []byte(edit[0]), []byte(edit[1])))
		added, err := read.Import(t.Context(), l)
		if !errors.Is(err, transcripts.ErrContradicted) || added != 0 {
			t.Fatalf("Import of %q = %d, %v, want ErrContradicted", edit[1], added, err)
		}
		for _, part := range []string{"garden.jsonl", "revision ", read.Session.String(), "another store"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
}

// A cutStore fails every append after the first left with errCut.
type cutStore struct {
	*eventstest.Slice
	left int
}

// errCut is the error of an append after the first left.
var errCut = errors.New("cut")

func (s *cutStore) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	if s.left--; s.left < 0 {
		return errCut
	}
	return s.Slice.Append(ctx, stream, after, records...)
}

// The events that an import appended before an error stay, and the next import
// appends the rest.
func TestAnImportThatWasCutGoesOn(t *testing.T) {
	t.Parallel()
	var data bytes.Buffer
	for i := range 700 {
		fmt.Fprintf(&data, `{"type":"user","uuid":"u%d","sessionId":"s","timestamp":"2026-03-01T10:00:00Z","message":{"content":"%d"}}`+"\n", i, i)
	}
	store := &cutStore{eventstest.NewSlice(), 2}
	l := events.NewLedger(store, newLedger().Mint(), time.Now)
	read := readFile(t, data.Bytes())
	added, err := read.Import(t.Context(), l)
	if !errors.Is(err, errCut) || added == 0 || added >= 701 {
		t.Fatalf("Import = %d, %v, want a part and the error", added, err)
	}
	store.left = 100
	if rest := importAll(t, l, data.Bytes()); added+rest != 701 {
		t.Errorf("the two imports add %d and %d events, want 701 in all", added, rest)
	}
}

// Any bytes are a foreign file or a transcript that imports, and a second import adds
// no event.
func FuzzReadClaudeCode(f *testing.F) {
	f.Add(fixture(f, "garden.jsonl"))
	for row := range bytes.SplitSeq(fixture(f, "garden.jsonl"), []byte("\n")) {
		f.Add(row)
	}
	f.Add([]byte(asks + spawns + progressOf("a1") + fileOf("a2") + ends))
	f.Add([]byte(said + "\n" + asked + `{"type":"permission-mode","permissionMode":"plan"}` + `{"type":"system","subtype":"compact_boundary"}`))
	f.Add([]byte("\uFEFF{}\r\n[\n5\n{\"type\":\"user\",\"message\":{\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":1}]}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := transcripts.ReadClaudeCode("fuzz", bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, transcripts.ErrForeign) {
				t.Fatal(err)
			}
			return
		}
		l := newLedger()
		if _, err := read.Import(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, factsOf(t, l), read.Report)
		if added := importAll(t, l, data); added != 0 {
			t.Fatalf("importing again adds %d events, want 0", added)
		}
	})
}
