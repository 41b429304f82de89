package index

import "strings"

// An inserter collects rows of a table and inserts several of them by one statement, which
// costs less than a statement for each. Until flush returns, queries may not see the rows.
type inserter struct {
	*database
	one, many string // statements for one row and for atOnce rows
	columns   int
	atOnce    int
	rows      int // that are collected
	arguments arguments
}

// inserter returns an inserter of rows of columns of a table, whose memory close releases.
// verb is the beginning of its statements, such as INSERT.
func (d *database) inserter(verb, table string, atOnce int, columns ...string) *inserter {
	places := "(?" + strings.Repeat(", ?", len(columns)-1) + ")"
	one := verb + " INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES " + places
	t := &inserter{database: d, one: one, many: one + strings.Repeat(", "+places, atOnce-1), columns: len(columns), atOnce: atOnce}
	d.inserters = append(d.inserters, t)
	return t
}

// add adds a row, as exec binds it.
func (t *inserter) add(values ...any) error {
	if err := t.arguments.put(t.database, values...); err != nil {
		return err
	}
	return t.added()
}

// addRow adds a row that puts its columns.
func (t *inserter) addRow(r row) error {
	if err := r.put(t.database, &t.arguments); err != nil {
		return err
	}
	return t.added()
}

// A row puts its columns into arguments.
type row interface {
	put(*database, *arguments) error
}

// added counts a row, and inserts all if there are enough.
func (t *inserter) added() error {
	if t.rows++; t.rows < t.atOnce {
		return nil
	}
	s, err := t.statement(t.many)
	if err == nil {
		err = t.run(s, t.arguments.memory, t.arguments.values)
	}
	t.clear()
	return err
}

// flush inserts the rows that are left.
func (t *inserter) flush() error {
	defer t.clear()
	for rest := t.arguments.values; len(rest) > 0; rest = rest[t.columns:] {
		s, err := t.statement(t.one)
		if err == nil {
			err = t.run(s, t.arguments.memory, rest[:t.columns])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// clear removes the collected rows.
func (t *inserter) clear() {
	t.rows = 0
	t.arguments.clear()
}
