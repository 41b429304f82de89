package where

import (
	"fmt"
	"strings"
)

// SQL returns the condition as SQL, with its arguments. A nil Expr is the empty text. If
// plain is not set, SQLite uses no index for the columns of the condition.
func (e *Expr) SQL(plain bool) (string, []any) {
	if e == nil {
		return "", nil
	}
	w := &writer{plain: plain}
	w.write(e, false)
	return w.text.String(), w.args
}

// A writer collects the SQL of a condition.
type writer struct {
	text  strings.Builder
	args  []any
	plain bool
}

// write writes a condition, or its opposite if negated is set. It pushes negations down to
// the comparisons, so that the SQL has no null in the place of a truth value.
func (w *writer) write(e *Expr, negated bool) {
	switch e.Op {
	case Not:
		w.write(e.Parts[0], !negated)
		return
	case Compare:
		w.compare(e, negated)
		return
	}
	op := e.Op
	if negated {
		op = map[string]string{And: Or, Or: And}[op]
	}
	w.text.WriteString("(")
	for i, part := range e.Parts {
		if i > 0 {
			w.text.WriteString(" " + strings.ToUpper(op) + " ")
		}
		w.write(part, negated)
	}
	w.text.WriteString(")")
}

// compare writes a comparison.
func (w *writer) compare(e *Expr, negated bool) {
	sign := e.Sign
	if sign == "!=" {
		sign, negated = "=", !negated
	}
	column := e.Field.Column
	if !w.plain && e.Field.Each == "" {
		column = "+" + column
	}
	condition, args, absent := comparison(column, sign, e.Value)
	if e.Field.Each != "" {
		if absent { // no value is present
			condition, negated = column+" IS NOT NULL", !negated
		}
		w.text.WriteString(map[bool]string{true: "NOT "}[negated])
		fmt.Fprintf(&w.text, e.Field.Each, condition)
		w.args = append(w.args, args...)
		return
	}
	switch {
	case absent && negated:
		condition = column + " IS NOT NULL"
	case absent:
	case negated:
		condition = "NOT coalesce(" + condition + ", 0)"
	}
	w.text.WriteString(condition)
	w.args = append(w.args, args...)
}

// comparison returns the SQL of a comparison that is no !=, in parentheses where it needs
// them, and whether it holds for the absent value alone.
func comparison(column, sign string, v Value) (condition string, args []any, absent bool) {
	switch {
	case v.Null, sign == "=" && v.Number == nil && v.First.IsZero() && v.Text == "":
		return column + " IS NULL", nil, true
	case sign == "~" && v.Pattern != nil:
		return column + ` LIKE ? ESCAPE '\'`, []any{like(v.Pattern)}, false
	case sign == "~" && v.Text == "":
		return column + " IS NOT NULL", nil, false
	case sign == "~":
		return "instr(lower(" + column + "), lower(?)) > 0", []any{v.Text}, false
	case !v.First.IsZero():
		return moment(column, sign, v)
	case v.Number != nil:
		return column + " " + sign + " ?", []any{v.Number}, false
	case v.Text == "": // every present text is greater than the empty one
		return map[bool]string{true: column + " IS NOT NULL", false: "0"}[sign[0] == '>'], nil, false
	}
	return column + " " + sign + " ?", []any{v.Text}, false
}

// moment returns the SQL of a comparison with a time.
func moment(column, sign string, v Value) (string, []any, bool) {
	if v.First.Equal(v.Last) {
		return column + " " + sign + " ?", []any{v.First}, false
	}
	switch sign {
	case "<":
		return column + " < ?", []any{v.First}, false
	case "<=":
		return column + " < ?", []any{v.Last}, false
	case ">":
		return column + " >= ?", []any{v.Last}, false
	case ">=":
		return column + " >= ?", []any{v.First}, false
	}
	return "(" + column + " >= ? AND " + column + " < ?)", []any{v.First, v.Last}, false
}

// like returns the pattern of LIKE for the texts between stars.
func like(parts []string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(part)
	}
	return strings.Join(escaped, "%")
}
