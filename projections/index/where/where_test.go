package where

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// fields are the fields of the tests.
var fields = []Field{
	{Name: "tool", Type: Text, Column: "tool"},
	{Name: "outcome", Type: Text, Column: "outcome", Words: []string{"open", "succeeded"}},
	{Name: "requests", Type: Number, Column: "requests"},
	{Name: "took", Type: Duration, Column: "took"},
	{Name: "asked", Type: Time, Column: "asked"},
	{Name: "began", Type: Flag, Column: "began"},
	{Name: "by", Type: Text, Column: "p.by", Each: "EXISTS (SELECT 1 FROM p WHERE %s)"},
}

// clock parses RFC 3339, and a date as the whole day.
func clock(text string) (first, last time.Time, err error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, day.AddDate(0, 0, 1), nil
	}
	first, err = time.Parse(time.RFC3339, text)
	return first, first, err
}

// A condition becomes SQL in which each value is a parameter.
func TestAConditionBecomesSQLWithParameters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{``, ``},
		{`tool = bash`, `tool = ? [bash]`},
		{`tool != "a b"`, `NOT coalesce(tool = ?, 0) [a b]`},
		{`TOOL`, `column 1: there is no field "TOOL"`},
		{`tool = bash or tool = read and began`, `(tool = ? OR (tool = ? AND began = ?)) [bash read 1]`},
		{`(tool = bash or tool = read) and not began`, `((tool = ? OR tool = ?) AND NOT coalesce(began = ?, 0)) [bash read 1]`},
		{`not (tool = bash or took > 1.5s)`, `(NOT coalesce(tool = ?, 0) AND NOT coalesce(took > ?, 0)) [bash 1500]`},
		{`not not began = false`, `began = ? [0]`},
		{`tool = null`, `tool IS NULL []`},
		{`tool != null`, `tool IS NOT NULL []`},
		{`tool = ''`, `tool IS NULL []`},
		{`tool = "null"`, `tool = ? [null]`},
		{`tool ~ 'rm -rf'`, `instr(lower(tool), lower(?)) > 0 [rm -rf]`},
		{`tool ~ "10%_\*"`, `instr(lower(tool), lower(?)) > 0 [10%_*]`},
		{`tool ~ "a%*\\b"`, `tool LIKE ? ESCAPE '\' [a\%%\\b]`},
		{`requests >= 2`, `requests >= ? [2]`},
		{`requests=2.5`, `requests = ? [2.5]`},
		{`took<250us`, `took < ? [0.25]`},
		{`took > 2d`, `took > ? [172800000]`},
		{`asked = 2026-01-02`, `(asked >= ? AND asked < ?) [2026-01-02T00:00:00Z 2026-01-03T00:00:00Z]`},
		{`asked > 2026-01-02`, `asked >= ? [2026-01-03T00:00:00Z]`},
		{`asked <= 2026-01-02`, `asked < ? [2026-01-03T00:00:00Z]`},
		{`asked < 2026-01-02T10:00:00Z`, `asked < ? [2026-01-02T10:00:00Z]`},
		{`by = user`, `EXISTS (SELECT 1 FROM p WHERE p.by = ?) [user]`},
		{`by != user`, `NOT EXISTS (SELECT 1 FROM p WHERE p.by = ?) [user]`},
		{`by = null`, `NOT EXISTS (SELECT 1 FROM p WHERE p.by IS NOT NULL) []`},
		{`by != null`, `EXISTS (SELECT 1 FROM p WHERE p.by IS NOT NULL) []`},
		{`tool = "'; DROP TABLE calls; --"`, `tool = ? ['; DROP TABLE calls; --]`},
	} {
		e, err := Parse(c.text, fields, clock)
		text, args := e.SQL(true)
		for i, a := range args {
			if at, ok := a.(time.Time); ok {
				args[i] = at.Format(time.RFC3339)
			}
		}
		got := strings.TrimSpace(fmt.Sprint(text, " ", args))
		if e == nil {
			got = ""
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s is\n  %s\nwant\n  %s", c.text, got, c.want)
		}
	}
	if text, _ := must(t, `tool = a and by = b`).SQL(false); text != "(+tool = ? AND EXISTS (SELECT 1 FROM p WHERE p.by = ?))" {
		t.Errorf("without indexes the condition is %s", text)
	}
}

// must parses a valid condition.
func must(t *testing.T, text string) *Expr {
	t.Helper()
	e, err := Parse(text, fields, clock)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// An error names the column, in characters, and the names that may be meant.
func TestAnErrorNamesTheColumn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want, name string }{
		{`tol = a`, `column 1: there is no field "tol"`, "tool"},
		{`tool = "é" and tok > 1s`, `column 16: there is no field "tok"`, "took"},
		{`tool =`, `column 7: expected a value behind =, found the end`, ""},
		{`tool`, `column 5: expected = != < <= > >= or ~ behind tool, found the end`, ""},
		{`tool == a`, `column 7: expected a value behind =, found "="`, ""},
		{`(tool = a`, `column 10: expected ) to close the one of column 1, found the end`, ""},
		{`tool = a)`, `column 9: expected and, or or the end, found ")"`, ""},
		{`tool = a b`, `column 10: expected and, or or the end, found "b"`, ""},
		{`tool = "a`, `column 8: the text has no closing "`, ""},
		{`tool ! a`, `column 6: "!" has no meaning here: the comparisons are = != < <= > >= ~, joined by and, or, not`, ""},
		{`and tool = a`, `column 1: expected a field, found "and"`, ""},
		{`tool = a and`, `column 13: expected a field, found the end`, ""},
		{`outcome = sucseeded`, `column 11: outcome is never "sucseeded"`, "succeeded"},
		{`requests = many`, `column 12: requests is a number, such as 3 or 2.5, and not "many"`, ""},
		{`requests = 0x10p1`, `column 12: requests is a number, such as 3 or 2.5, and not "0x10p1"`, ""},
		{`requests = inf`, `column 12: requests is a number, such as 3 or 2.5, and not "inf"`, ""},
		{`took > 1500`, `column 8: took is a duration, such as 250ms, 1.5s or 2h, and not "1500"`, ""},
		{`took ~ 1s`, `column 6: took is a duration, which ~ does not compare`, ""},
		{`began > true`, `column 7: began is a flag, which > does not compare`, ""},
		{`began = 1`, `column 9: began is true or false, and not "1"`, ""},
		{`tool < null`, `column 6: null is only compared by = and !=`, ""},
		{`asked > never`, `column 9: asked is a time: `, ""},
		{"tool = a\x00", "column 9: the character is not valid text", ""},
		{"tool = '\xff'", "column 9: the character is not valid text", ""},
		{strings.Repeat("not ", MaxDepth+1) + "began", "column 201: the condition has more than 50 levels", ""},
		{"began" + strings.Repeat(" or began", MaxComparisons), "column 901: the condition has more than 100 comparisons", ""},
		{strings.Repeat(" ", MaxBytes+1), "column 1: the condition has 8193 bytes, and at most 8192 are allowed", ""},
	} {
		_, err := Parse(c.text, fields, clock)
		fault, ok := errors.AsType[*Error](err)
		if !ok || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want %s", c.text, err, c.want)
			continue
		}
		if c.name != "" && (len(fault.Names) == 0 || fault.Names[0] != c.name) {
			t.Errorf("%q: the nearest name is %q, want %q", c.text, fault.Names, c.name)
		}
	}
}

// FuzzParse checks that every text is a condition or an Error inside of the text, that the
// SQL of a condition has a parameter for each argument, and that it has nothing but the
// words of this package and the columns of fields.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`tool = bash and (outcome != succeeded or took > 1.5s) and not tool ~ "rm *"`, `by != null or asked <= 2026-01-02`, `tool = '\n\"\\'`, `not(began)`, "tool ~ \"\x00*\"", "((((", "tool=\uFFFD",
	} {
		f.Add(text)
	}
	words := []string{"NOT", "coalesce(", "EXISTS", "(SELECT", "1", "FROM", "p", "WHERE", "AND", "OR", "IS", "NULL", "LIKE", "ESCAPE", `'\'`, "instr(lower(", "lower(?))", "?"}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text, fields, clock)
		if err != nil {
			fault, ok := errors.AsType[*Error](err)
			if !ok || fault.Column < 1 || fault.Column > utf8.RuneCountInString(text)+1 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		for _, plain := range []bool{true, false} {
			sql, args := e.SQL(plain)
			if strings.Count(sql, "?") != len(args) {
				t.Fatalf("%q: %s with %d arguments", text, sql, len(args))
			}
			for _, word := range strings.FieldsFunc(sql, func(r rune) bool { return strings.ContainsRune(" (),+<>=!", r) }) {
				known := slices.ContainsFunc(words, func(w string) bool {
					return strings.Trim(w, "()?") == strings.Trim(word, "?") || strings.Contains(w, word)
				})
				known = known || slices.ContainsFunc(fields, func(f Field) bool { return f.Column == word }) || word == "0"
				if !known {
					t.Fatalf("%q: the SQL %s has the word %q", text, sql, word)
				}
			}
		}
	})
}
