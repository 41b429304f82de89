package index

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/events"
)

// A Difference is the first difference between an index and its log.
type Difference struct {
	// Table is the table of the differing row; empty: the whole index is not to be
	// believed.
	Table string
	// Detail names the row, and its columns that differ.
	Detail string
}

// String returns the table and the detail.
func (d Difference) String() string {
	if d.Table == "" {
		return d.Detail
	}
	return d.Table + ": " + d.Detail
}

// Compare rebuilds the index into a temporary folder, through the last event that the index
// has, and compares both table by table and the words of the full-text index. It returns
// the first difference, or nil. An index that is absent has none; an index that CatchUp
// would rebuild is one. Compare uses memory for some rows, and the disk of the temporary
// folder for the rebuilt index. Report is as in CatchUp.
func Compare(ctx context.Context, l *events.Ledger, x *Index, report func(Progress)) (found *Difference, err error) {
	r, err := x.open(ctx)
	if errors.Is(err, ErrNoIndex) {
		return nil, nil
	}
	if err == nil {
		defer func() { err = errors.Join(err, r.close()) }()
		found, err = compare(ctx, l, x, r, report)
	}
	if errors.Is(err, errUnfit) || errors.Is(err, ErrDamagedIndex) {
		return &Difference{Detail: err.Error()}, nil
	}
	return found, err
}

// compare does the work of Compare with an open index. It returns an errUnfit or an
// ErrDamagedIndex for an index that CatchUp would rebuild, or that SQLite finds damaged.
func compare(ctx context.Context, l *events.Ledger, x *Index, r *reader, report func(Progress)) (found *Difference, err error) {
	// A transaction sees the rows of one moment, also while another process writes.
	if _, err := r.conn.ExecContext(ctx, "BEGIN"); err != nil {
		return nil, classified(err)
	}
	p, err := r.progress(ctx)
	if err == nil {
		err = p.check(ctx, l)
	}
	if err == nil {
		err = r.integrity(ctx)
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ledger-index-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, linkName)
	if p.events > 0 {
		err = x.create(ctx, l, path, building{report: report, reason: "to compare", texts: p.texts, through: p.last.Position})
	} else {
		err = makeEmpty(path, p.texts)
	}
	if err != nil {
		return nil, rebuilt(err)
	}
	fresh, err := openReader(ctx, path)
	if err != nil {
		return nil, rebuilt(err)
	}
	defer func() { err = errors.Join(err, fresh.close()) }()
	for _, t := range Tables() {
		if !p.texts && slices.Contains(textTables, t.Name) {
			continue
		}
		if found, err := compareTable(ctx, t, r, fresh); err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}

// rebuilt returns the error of the temporary index, which says nothing about the index that
// is compared.
func rebuilt(err error) error {
	if errors.Is(err, errUnfit) || errors.Is(err, ErrDamagedIndex) {
		return fmt.Errorf("rebuild index to compare it: %v", err)
	}
	return fmt.Errorf("rebuild index to compare it: %w", err)
}

// makeEmpty makes an index without events.
func makeEmpty(path string, texts bool) error {
	d, err := connect(path, writing, bulkPragmas)
	if err != nil {
		return err
	}
	f, err := newBulkFiller(d, maxBatchEvents, texts)
	if err == nil {
		err = f.finish()
	}
	return errors.Join(err, d.close())
}

// integrity returns an ErrDamagedIndex if SQLite finds the database inconsistent.
func (r *reader) integrity(ctx context.Context) error {
	rows, err := r.conn.QueryContext(ctx, "PRAGMA integrity_check(1)")
	if err != nil {
		return classified(err)
	}
	defer rows.Close()
	for row, err := range (&Rows{rows: rows}).All() {
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamagedIndex, err)
		}
		if text, _ := row[0].(string); text != "ok" {
			return fmt.Errorf("%w: %s", ErrDamagedIndex, text)
		}
	}
	return nil
}

// compareTable returns the first difference between the rows of a table in an index and in
// its rebuild.
func compareTable(ctx context.Context, t Table, old, fresh *reader) (*Difference, error) {
	if t.Virtual && t.Name != wordsTable {
		return nil, nil // its content is the table texts, and its words are compared
	}
	statement := "SELECT * FROM " + t.Name
	if !t.Virtual {
		statement += " ORDER BY " + strings.Join(t.key(), ", ")
	}
	left, stopLeft, err := old.rows(ctx, statement)
	if err != nil {
		return nil, classified(err)
	}
	defer stopLeft()
	right, stopRight, err := fresh.rows(ctx, statement)
	if err != nil {
		return nil, rebuilt(err)
	}
	defer stopRight()
	for {
		a, errA, okA := left()
		b, errB, okB := right()
		switch {
		case errA != nil:
			return nil, fmt.Errorf("%w: %w", ErrDamagedIndex, errA)
		case errB != nil:
			return nil, rebuilt(errB)
		case !okA && !okB:
			return nil, nil
		case !okB:
			return &Difference{t.Name, "the log does not give the row " + t.rowText(a)}, nil
		case !okA:
			return &Difference{t.Name, "the row " + t.rowText(b) + " is missing"}, nil
		case t.before(b, a):
			return &Difference{t.Name, "the row " + t.rowText(b) + " is missing"}, nil
		case t.before(a, b):
			return &Difference{t.Name, "the log does not give the row " + t.rowText(a)}, nil
		case !reflect.DeepEqual(a, b):
			return &Difference{t.Name, t.differing(a, b)}, nil
		}
	}
}

// wordsTable is the table of the words of the full-text index.
const wordsTable = "text_words"

// rows runs a statement and returns its rows one by one, with the function that ends it.
func (r *reader) rows(ctx context.Context, statement string) (func() ([]any, error, bool), func(), error) {
	rows, err := r.conn.QueryContext(ctx, statement)
	if err != nil {
		return nil, nil, err
	}
	next, stop := iter.Pull2((&Rows{rows: rows}).All())
	return next, func() {
		stop()
		_ = rows.Close() // it was read
	}, nil
}

// key returns the columns that order the rows: those of the primary key.
func (t Table) key() []string {
	switch t.Name {
	case wordsTable:
		return []string{"term", "doc", "col", "offset"}
	case "registered_tools", "refused_tools", "offered_tools", "turns", "recorded_texts":
		return []string{t.Columns[0].Name, t.Columns[1].Name}
	case "path_uses":
		return []string{"path", "call", "access", "source"}
	case "hidden_tools":
		return []string{"session", "turn", "place"}
	case "names":
		return []string{"segment", "key", "id"}
	}
	return []string{t.Columns[0].Name}
}

// before reports whether the key of the row a precedes the key of b.
func (t Table) before(a, b []any) bool {
	for i := range t.key() {
		switch left := a[i].(type) {
		case int64:
			if right, ok := b[i].(int64); ok && left != right {
				return left < right
			}
		case string:
			if right, ok := b[i].(string); ok && left != right {
				return left < right
			}
		}
	}
	return false
}

// rowText returns the first columns of a row, for a person.
func (t Table) rowText(row []any) string {
	var parts []string
	for i, v := range row[:min(len(row), 4)] {
		parts = append(parts, t.columnName(i)+" "+shortened(v))
	}
	return strings.Join(parts, ", ")
}

// differing returns the text of two rows of the same place.
func (t Table) differing(a, b []any) string {
	var parts []string
	for i := range a {
		if !reflect.DeepEqual(a[i], b[i]) {
			parts = append(parts, fmt.Sprintf("%s is %s, and the log gives %s", t.columnName(i), shortened(a[i]), shortened(b[i])))
		}
	}
	return "in the row " + t.rowText(b) + ": " + strings.Join(parts, "; ")
}

// columnName returns the name of the column i.
func (t Table) columnName(i int) string {
	if t.Name == wordsTable {
		return []string{"term", "doc", "col", "offset"}[i]
	}
	return t.Columns[i].Name
}

// shortened returns a value as text of at most 80 bytes.
func shortened(v any) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprintf("%q", cut(fmt.Sprint(v), 80))
}
