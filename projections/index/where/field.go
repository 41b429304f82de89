package where

import (
	"cmp"
	"slices"
)

// A Type is the type of the values of a Field.
type Type string

// The types of fields.
const (
	Text     Type = "text"
	Number   Type = "number"
	Duration Type = "duration" // in SQL a number of milliseconds
	Time     Type = "time"
	Flag     Type = "flag" // in SQL 0 or 1
)

// A Field is a name that a condition may compare.
type Field struct {
	Name    string
	Type    Type
	Comment string // a phrase for people
	// Column is the SQL expression of the value.
	Column string
	// Each is set for a field of several values: an SQL condition with one %s, which holds if
	// a row of the values meets the condition in its place. Column then is the value in such a
	// row.
	Each string
	// Words are the possible values of a text; nil: any text.
	Words []string
}

// field returns the field with a name.
func field(fields []Field, name string) (Field, bool) {
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return fields[i], true
}

// maxNameRunes bounds the names that nearest compares.
const maxNameRunes = 64

// nearest returns names, those first that need the fewest edits to become name.
func nearest(name string, names []string) []string {
	typed := []rune(name)
	typed = typed[:min(len(typed), maxNameRunes)]
	edits := map[string]int{}
	for _, other := range names {
		edits[other] = distance(typed, []rune(other))
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(edits[a], edits[b]) })
	return names
}

// distance returns the number of insertions, removals and replacements of characters that
// turn a into b.
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j, y := range b {
			change := diagonal
			if x != y {
				change++
			}
			diagonal, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
