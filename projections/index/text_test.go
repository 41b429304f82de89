package index

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// An index without full text stays so in later fills and rebuilds, until a rebuild adds the
// texts. Its other rows are those of an index with full text, Compare finds no difference,
// and a statement over the texts is an ErrNoText.
func TestAnIndexWithoutFullTextStaysSo(t *testing.T) {
	t.Parallel()
	history := projectionstest.History(31, length(200))
	l, store := newLedger(t, history[:len(history)/2])
	x := New(filepath.Join(t.TempDir(), "index"))
	noError(t, x.RebuildWithoutText(t.Context(), l, nil))
	noError(t, projectionstest.Append(t.Context(), store, history[len(history)/2:]))
	whole := dump(t, newIndex(t, l))
	want := slices.DeleteFunc(slices.Clone(whole), func(line string) bool {
		name, _, _ := strings.Cut(line, ":")
		return slices.Contains(textTables, name)
	})
	for i, line := range want {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("index_state: 1|%d|1|", schemaVersion)); ok {
			want[i] = fmt.Sprintf("index_state: 1|%d|0|%s", schemaVersion, rest)
		}
	}
	for _, fill := range []func() error{
		func() error { return x.CatchUp(t.Context(), l, nil) },
		func() error { return x.Rebuild(t.Context(), l, nil) },
	} {
		noError(t, fill())
		same(t, "without full text", dump(t, x), want)
		if found, err := Compare(t.Context(), l, x, nil); err != nil || found != nil {
			t.Errorf("Compare = %v, %v, want no difference", found, err)
		}
	}
	for _, statement := range []string{"SELECT * FROM text_search WHERE text_search MATCH 'a'", "SELECT count(*) FROM TEXTS"} {
		if _, err := x.Query(t.Context(), statement); !errors.Is(err, ErrNoText) || !errors.Is(err, ErrStatement) {
			t.Errorf("Query(%s) = %v, want ErrNoText", statement, err)
		}
	}
	if _, err := x.Query(t.Context(), "SELECT nonsense FROM calls"); !errors.Is(err, ErrStatement) || errors.Is(err, ErrNoText) {
		t.Errorf("Query = %v, want ErrStatement alone", err)
	}
	noError(t, x.RebuildWithText(t.Context(), l, nil))
	same(t, "with full text again", dump(t, x), whole)
}

// The statements of a fill look every row up by an index, also before the indexes that a
// bulk fill makes last.
func TestABulkFillReadsNoWholeTable(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(32, length(3000)))
	d, err := connect(filepath.Join(t.TempDir(), linkName), writing, bulkPragmas)
	noError(t, err)
	f, err := newBulkFiller(d, maxBatchEvents, true)
	noError(t, err)
	n := 0
	for v, err := range l.ScanAhead(t.Context(), events.Query{}) {
		noError(t, err)
		noError(t, f.add(v))
		if n++; n%10 == 0 { // so that the rows of earlier events are read again
			noError(t, f.commit())
			f.forget()
		}
	}
	var statements []string
	for text := range d.prepared {
		if !strings.HasPrefix(text, "SELECT max") && !strings.HasPrefix(text, "SELECT count(*) FROM sqlite") {
			statements = append(statements, text)
		}
	}
	if len(statements) < 20 {
		t.Errorf("the fill has %d statements, want more", len(statements))
	}
	for _, text := range statements {
		arguments := make([]any, 1024) // more than any statement has
		noError(t, d.query(func(row []driver.Value) error {
			// The index of the open approvals has few rows.
			if step, _ := row[3].(string); strings.HasPrefix(step, "SCAN") && !strings.Contains(step, "CONSTANT ROW") &&
				!strings.Contains(step, "approvals_open") && !strings.HasSuffix(step, "VALUES CLAUSE") {
				t.Errorf("%s: %s", text, step)
			}
			return nil
		}, "EXPLAIN QUERY PLAN "+text, arguments...))
	}
	noError(t, errors.Join(f.finish(), d.close()))
}
