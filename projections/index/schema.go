package index

import (
	_ "embed"
	"regexp"
	"strings"
)

// schemaVersion is the version of schema.sql and of the rules that fill it. A change of
// either increments it, and every index is then rebuilt.
const schemaVersion = 2

// schemaSQL is the schema, with a comment before each table and after each column.
//
//go:embed schema.sql
var schemaSQL string

// A Table is a table of the schema.
type Table struct {
	Name    string
	Comment string   // one or two sentences
	Columns []Column // in order; those of a virtual table that are declared
	Virtual bool     // a full-text index, or a view of one
}

// A Column is a column of a Table.
type Column struct {
	Name    string
	Type    string // TEXT or INTEGER; empty in a virtual table
	Null    bool   // the column may be null
	Comment string
}

var (
	tableLine  = regexp.MustCompile(`^CREATE (VIRTUAL )?TABLE (\w+)`)
	columnLine = regexp.MustCompile(`^  (\w+) *(TEXT|INTEGER)?([^-]*)-- (.*)$`)
)

// Tables returns the tables of the schema, in the order of schema.sql.
func Tables() []Table {
	var tables []Table
	comment := ""
	for line := range strings.SplitSeq(schemaSQL, "\n") {
		if text, ok := strings.CutPrefix(line, "-- "); ok {
			comment = text
		} else if m := tableLine.FindStringSubmatch(line); m != nil {
			tables = append(tables, Table{Name: m[2], Comment: comment, Virtual: m[1] != ""})
		} else if m := columnLine.FindStringSubmatch(line); m != nil {
			t := &tables[len(tables)-1]
			t.Columns = append(t.Columns, Column{m[1], m[2], !strings.Contains(m[3], "NOT NULL") && !strings.Contains(m[3], "PRIMARY KEY"), m[4]})
		}
	}
	return tables
}
