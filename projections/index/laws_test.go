package index

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// newRandom returns a source of random numbers, and prints its seed when the test fails.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// An index filled in one pass, in batches of any size with restarts, and rebuilt has the
// same rows, and Compare finds no difference.
func TestEveryWayOfFillingGivesTheSameRows(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	for range rounds(1, 30) {
		history := projectionstest.History(random.Uint64(), length(500))
		l, store := newLedger(t, nil)
		parts := New(filepath.Join(t.TempDir(), "index"))
		for rest := history; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(length(200)))
			noError(t, projectionstest.Append(t.Context(), store, rest[:n]))
			rest = rest[n:]
			parts.batch = 1 + random.IntN(40)
			noError(t, parts.CatchUp(t.Context(), l, nil))
		}
		want := dump(t, newIndex(t, l))
		same(t, "in parts", dump(t, parts), want)
		if found, err := Compare(t.Context(), l, parts, nil); err != nil || found != nil {
			t.Fatalf("Compare = %v, %v, want no difference", found, err)
		}
		parts.batch = 7
		noError(t, parts.Rebuild(t.Context(), l, nil))
		same(t, "rebuilt", dump(t, parts), want)
	}
}

// The registrations of the index at a position are those of the catalog as of that
// position, and their precedence is that of the catalog.
func TestRegistryAtAPositionIsThatOfTheCatalog(t *testing.T) {
	t.Parallel()
	for seed := range uint64(rounds(1, 30)) {
		l, _ := newLedger(t, projectionstest.History(seed, length(800)))
		x := newIndex(t, l)
		projection := catalog.Projection()
		state := projection.Init()
		for v, err := range l.ReadAll(t.Context(), events.Position{}) {
			noError(t, err)
			before := len(state.Layers())
			if state = projection.Apply(state, v); !slices.Contains(catalog.Kinds(), v.Event.Kind()) || before%2 == 1 {
				continue
			}
			var active, effective []string
			var open []catalog.LayerHistory
			for _, layer := range state.Layers() {
				if layer.Ended != 0 {
					continue
				}
				for _, r := range layer.Registrations {
					if r.Ended != 0 {
						continue
					}
					for _, tool := range r.Tools {
						active = append(active, fmt.Sprintf("%s|%s|%s", layer.ID, r.ID, tool.Name))
					}
				}
				open = append(open, layer)
			}
			slices.Sort(active)
			same(t, "active at "+v.Position.String(), table(t, x, strings.ReplaceAll(`SELECT layer, registration, tool FROM registrations JOIN registered_tools USING (registration)
				WHERE registered_position <= @at AND (ended_position IS NULL OR ended_position > @at) ORDER BY 1, 2, 3`, "@at", v.Position.String())), active)
			slices.SortStableFunc(open, func(a, b catalog.LayerHistory) int {
				return cmp.Or(cmp.Compare(a.Placement, b.Placement), strings.Compare(a.ID.String(), b.ID.String()))
			})
			var ids []domain.LayerID
			for _, layer := range open {
				ids = append(ids, layer.ID)
			}
			for _, e := range state.Catalog(ids) {
				effective = append(effective, fmt.Sprintf("%s|%s", e.Name, e.Registration))
			}
			slices.Sort(effective)
			same(t, "in effect at "+v.Position.String(), table(t, x, strings.ReplaceAll(effectiveAt, "@at", v.Position.String())), effective)
		}
	}
}

// effectiveAt selects the registration in effect of each name at the position @at, over
// all layers.
const effectiveAt = `SELECT tool, registration FROM (
	SELECT tool, registration, row_number() OVER (PARTITION BY tool ORDER BY
		CASE placement WHEN 'session' THEN 3 WHEN 'location' THEN 2 ELSE 1 END DESC, layer DESC, registered_position DESC) AS place
	FROM registrations JOIN registered_tools USING (registration) JOIN layers USING (layer)
	WHERE registered_position <= @at AND (ended_position IS NULL OR ended_position > @at)
) WHERE place = 1 ORDER BY 1`

// An index of another log, an index that is ahead of its log, one of another version of the
// schema, one that skipped events of kinds that are now known, and one that is no database
// are rebuilt. Status says so before.
func TestAnUnfitIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	history := projectionstest.History(7, 60)
	l, _ := newLedger(t, history)
	want := dump(t, newIndex(t, l))
	other, _ := newLedger(t, projectionstest.History(8, 60))
	longer, _ := newLedger(t, slices.Concat(history, more(history)))
	change := func(statement string) func(*testing.T, *Index) {
		return func(t *testing.T, x *Index) {
			path, err := x.current()
			noError(t, err)
			d, err := connect(path, writing, writerPragmas)
			noError(t, err)
			noError(t, errors.Join(d.script(statement), d.close()))
		}
	}
	for _, c := range []struct {
		name   string
		filled *events.Ledger
		change func(*testing.T, *Index)
		reason string
	}{
		{"foreign", other, nil, "it begins with"},
		{"ahead", longer, nil, "the log does not have its last event"},
		{"older schema", l, change("PRAGMA user_version = 99; UPDATE index_state SET schema_version = 99"), "its schema has version 99"},
		{"learned kind", l, change("INSERT INTO unknown_events VALUES ('evt_1', 'CallStarted', 1, 's', 1, 1)"), ""},
		{"dropped table", l, change("DROP TABLE calls"), ""},
		{"no database", l, func(t *testing.T, x *Index) {
			path, err := x.current()
			noError(t, err)
			noError(t, os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600))
		}, "file is not a database"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := newIndex(t, c.filled)
			if c.change != nil {
				c.change(t, x)
			}
			if c.reason != "" {
				s, err := x.Status(t.Context(), l)
				noError(t, err)
				if s.State != Unfit || !strings.Contains(s.Reason, c.reason) {
					t.Errorf("Status = %s %q, want unfit with %q", s.State, s.Reason, c.reason)
				}
				if found, err := Compare(t.Context(), l, x, nil); err != nil || found == nil {
					t.Errorf("Compare = %v, %v, want a difference", found, err)
				}
			}
			reason := ""
			noError(t, x.CatchUp(t.Context(), l, func(p Progress) { reason = p.Reason }))
			if reason == "" {
				t.Error("CatchUp does not report that it rebuilds the index")
			}
			if c.name != "dropped table" || reason != "" {
				same(t, "after CatchUp", dump(t, x), want)
			}
			s, err := x.Status(t.Context(), l)
			noError(t, err)
			if s.State != Current {
				t.Errorf("Status after CatchUp = %s %q, want current", s.State, s.Reason)
			}
		})
	}
}

// more returns an event that continues a history in a new stream.
func more(history []events.Envelope) []events.Envelope {
	log := projectionstest.NewLog(99)
	id := log.Mint.Session()
	log.Add(events.SessionStream(id), events.SessionOpened{Session: id, Agent: "build", Origin: events.Origin{Kind: events.RunHere}})
	_ = history
	return log.Envelopes()
}

// After a changed byte anywhere in the database, either CatchUp rebuilds the index, or
// Compare reports a difference, or every row is as before.
func TestAChangedByteIsReportedOrHarmless(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	l, _ := newLedger(t, projectionstest.History(3, 60))
	x := newIndex(t, l)
	path, err := x.current()
	noError(t, err)
	intact, err := os.ReadFile(path)
	noError(t, err)
	want := dump(t, x)
	reported := 0
	for range rounds(length(70), 1500) {
		changed := slices.Clone(intact)
		i := random.IntN(len(changed))
		changed[i] ^= byte(1 + random.IntN(255))
		noError(t, os.WriteFile(path, changed, 0o600))
		found, err := Compare(t.Context(), l, x, nil)
		if err != nil {
			t.Fatalf("byte %d: Compare: %v", i, err)
		}
		if found != nil {
			reported++
			continue
		}
		same(t, fmt.Sprintf("byte %d", i), dump(t, x), want)
	}
	if reported == 0 && !raceEnabled { // with it there are few rounds
		t.Error("no changed byte was reported")
	}
}

// CatchUp over a database with a changed byte succeeds: it reads further events, or
// rebuilds the index.
func TestCatchUpSurvivesAChangedByte(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	history := projectionstest.History(4, 60)
	half, _ := newLedger(t, history[:len(history)/2])
	l, _ := newLedger(t, history)
	x := newIndex(t, half)
	path, err := x.current()
	noError(t, err)
	intact, err := os.ReadFile(path)
	noError(t, err)
	for range rounds(length(20), 500) {
		dir := t.TempDir()
		changed := slices.Clone(intact)
		i := random.IntN(len(changed))
		changed[i] ^= byte(1 + random.IntN(255))
		noError(t, os.WriteFile(filepath.Join(dir, "ledger-1.db"), changed, 0o600))
		noError(t, os.Symlink("ledger-1.db", filepath.Join(dir, linkName)))
		y := New(dir)
		if err := y.CatchUp(t.Context(), l, nil); err != nil {
			t.Fatalf("byte %d: CatchUp: %v", i, err)
		}
		s, err := y.Status(t.Context(), l)
		if err != nil || s.State != Current {
			t.Fatalf("byte %d: Status = %v %v, want current", i, s, err)
		}
	}
}

// Compare names the table and the columns of the first row that differs.
func TestCompareNamesTheRow(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(5, 60))
	for i, c := range []struct{ statement, want string }{
		{"UPDATE calls SET ran_ms = 77777 WHERE id = 2", "calls: in the row id \"2\""},
		{"DELETE FROM messages WHERE id = 2", "messages: the row id \"2\""},
		{"DELETE FROM texts WHERE id = (SELECT max(id) FROM texts)", "texts: the row id"},
		{"INSERT INTO files (id, path, session, message, call, position, time) VALUES (100000, 'p', 's', 'm', 'c', 1, 't')", "files: the log does not give the row id \"100000\""},
		{"INSERT INTO text_search (rowid, text) VALUES (1, 'zebra')", "text_words: "},
		{"UPDATE index_state SET events = 3", "index_state: in the row"},
	} {
		if raceEnabled && i > 1 {
			break
		}
		x := newIndex(t, l)
		path, err := x.current()
		noError(t, err)
		d, err := connect(path, writing, writerPragmas)
		noError(t, err)
		noError(t, errors.Join(d.script(c.statement), d.close()))
		found, err := Compare(t.Context(), l, x, nil)
		if err != nil || found == nil || !strings.Contains(found.String(), c.want) {
			t.Errorf("Compare after %s = %v, %v, want %s", c.statement, found, err, c.want)
		}
	}
}

// An index that is behind its log has no difference from the log, and an absent index has
// none either.
func TestCompareOfAPartialIndexFindsNothing(t *testing.T) {
	t.Parallel()
	history := projectionstest.History(6, 60)
	half, _ := newLedger(t, history[:len(history)/2])
	l, _ := newLedger(t, history)
	for _, x := range []*Index{newIndex(t, half), New(t.TempDir()), newIndex(t, events.NewLedger(eventstest.NewSlice(), domain.NewMint(nil, zeros{}), nil))} {
		if found, err := Compare(t.Context(), l, x, nil); err != nil || found != nil {
			t.Errorf("Compare = %v, %v, want no difference", found, err)
		}
	}
}
