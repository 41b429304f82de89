package index

import (
	"database/sql/driver"

	"github.com/settlement-ledger/ledger/projections/calls"
)

// EachCall passes the calls that meet a condition over the columns of the table calls to
// visit, in the order of their first events, one row at a time. An argument may be of any type
// that the rows of this package have, such as an ID or a time.
func (s *Snapshot) EachCall(condition string, args []any, visit func(calls.Call) error) error {
	return s.each(func(c *columnReader) error {
		var row callRow
		if err := row.scan(c.row); err != nil {
			return err
		}
		return visit(row.Call)
	}, selection("calls", callColumns)+" WHERE "+condition+" ORDER BY id", args...)
}

// Select passes the rows of a statement to visit, one at a time. A value is an int64, a
// float64, a string or nil; the slice is valid until visit returns. The arguments are those of
// EachCall. The tables and columns are in docs/schema.md.
func (s *Snapshot) Select(statement string, args []any, visit func([]driver.Value) error) error {
	return s.each(func(c *columnReader) error { return visit(c.row) }, statement, args...)
}
