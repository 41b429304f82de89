package index

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
)

// schemaVersion is the version of schema.sql and of the rules that fill it. A change of
// either increments it, and every index is then rebuilt.
const schemaVersion = 3

// schemaSQL is the schema, with a comment before each table and after each column.
//
//go:embed schema.sql
var schemaSQL string

// textTables are the tables of an index with full text. An index without it does not have
// them.
var textTables = []string{"texts", "text_search", wordsTable}

// filledIndexes are the indexes that the statements of a fill read.
var filledIndexes = []string{"registrations_layer", "approvals_open"}

var (
	createsTable = regexp.MustCompile(`(?m)^CREATE (?:VIRTUAL )?TABLE (\w+)`)
	createsIndex = regexp.MustCompile(`(?m)^CREATE (?:UNIQUE )?INDEX (\w+) ON (\w+)`)
)

// creation returns the statements of the schema that make the tables, with the indexes that
// filling reads, and those that make the other indexes, which a bulk fill runs last. Without
// texts it leaves textTables out.
func creation(texts bool) (tables, indexes string) {
	for statement := range strings.SplitAfterSeq(schemaSQL, ";\n") {
		table, named := createsTable.FindStringSubmatch(statement), createsIndex.FindStringSubmatch(statement)
		switch {
		case named != nil && !texts && slices.Contains(textTables, named[2]):
		case named != nil && !slices.Contains(filledIndexes, named[1]):
			indexes += statement
		case table == nil || texts || !slices.Contains(textTables, table[1]):
			tables += statement
		}
	}
	return tables, indexes
}

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
