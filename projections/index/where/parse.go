package where

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The bounds of a condition.
const (
	MaxBytes       = 8192
	MaxComparisons = 100
	MaxDepth       = 50
)

// The operations of an Expr.
const (
	And     = "and"
	Or      = "or"
	Not     = "not"
	Compare = "compare"
)

// An Expr is a parsed condition: a comparison, or conditions that And, Or or Not joins. A
// nil Expr holds for every row.
type Expr struct {
	Op    string
	Parts []*Expr
	// Field, Sign and Value are those of a comparison.
	Field Field
	Sign  string
	Value Value
}

// A Value is the right side of a comparison. Exactly one of its forms is set.
type Value struct {
	Null    bool
	Text    string
	Pattern []string // of ~ with *: the texts between the stars
	Number  any      // int64 or float64; a duration in milliseconds; a flag 0 or 1
	// First and Last are the first and the last time that the text may mean. Last is excluded
	// if it is later.
	First, Last time.Time
}

// A Clock parses a time as people write it, and returns the first time that the text means
// and the first one behind that; both are the same for an instant.
type Clock func(text string) (first, last time.Time, err error)

// A conditionParser reads the tokens of a condition.
type conditionParser struct {
	tokens      []token
	fields      []Field
	clock       Clock
	comparisons int
}

// Parse parses a condition over fields. An empty text is a nil Expr.
func Parse(text string, fields []Field, clock Clock) (*Expr, error) {
	tokens, err := lex(text)
	if err != nil || len(tokens) == 1 {
		return nil, err
	}
	p := &conditionParser{tokens: tokens, fields: fields, clock: clock}
	e, err := p.joined(Or, 0)
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != endToken {
		return nil, fault(t, "expected and, or or the end, found %s", t.shown())
	}
	return e, nil
}

// fault returns the Error at a token.
func fault(t token, format string, args ...any) *Error {
	return &Error{Column: t.column, Message: fmt.Sprintf(format, args...)}
}

// peek returns the next token, and take takes it.
func (p *conditionParser) peek() token { return p.tokens[0] }

func (p *conditionParser) take() token {
	t := p.tokens[0]
	if t.kind != endToken {
		p.tokens = p.tokens[1:]
	}
	return t
}

// joined parses conditions joined by Or, or by And.
func (p *conditionParser) joined(op string, depth int) (*Expr, error) {
	part := func() (*Expr, error) {
		if op == Or {
			return p.joined(And, depth)
		}
		return p.unary(depth)
	}
	e, err := part()
	if err != nil {
		return nil, err
	}
	all := &Expr{Op: op, Parts: []*Expr{e}}
	for p.peek().is(op) {
		p.take()
		if e, err = part(); err != nil {
			return nil, err
		}
		all.Parts = append(all.Parts, e)
	}
	if len(all.Parts) == 1 {
		return e, nil
	}
	return all, nil
}

// unary parses a comparison, or a condition in parentheses or behind not.
func (p *conditionParser) unary(depth int) (*Expr, error) {
	t := p.take()
	if depth == MaxDepth {
		return nil, fault(t, "the condition has more than %d levels", MaxDepth)
	}
	switch {
	case t.is(Not):
		e, err := p.unary(depth + 1)
		return &Expr{Op: Not, Parts: []*Expr{e}}, err
	case t.text == "(" && t.kind == signToken:
		e, err := p.joined(Or, depth+1)
		if err != nil {
			return nil, err
		}
		if end := p.take(); end.text != ")" || end.kind != signToken {
			return nil, fault(end, "expected ) to close the one of column %d, found %s", t.column, end.shown())
		}
		return e, nil
	case t.kind != wordToken || t.is(And) || t.is(Or):
		return nil, fault(t, "expected a field, found %s", t.shown())
	}
	return p.comparison(t)
}

// comparison parses what follows the name of a field.
func (p *conditionParser) comparison(name token) (*Expr, error) {
	f, ok := field(p.fields, name.text)
	if !ok {
		var names []string
		for _, f := range p.fields {
			names = append(names, f.Name)
		}
		return nil, &Error{Column: name.column, Message: fmt.Sprintf("there is no field %q", name.text), Names: nearest(name.text, names)}
	}
	if p.comparisons++; p.comparisons > MaxComparisons {
		return nil, fault(name, "the condition has more than %d comparisons", MaxComparisons)
	}
	sign := p.peek()
	if sign.kind != signToken || sign.text == "(" || sign.text == ")" {
		if f.Type == Flag {
			return &Expr{Op: Compare, Field: f, Sign: "=", Value: Value{Number: int64(1)}}, nil
		}
		return nil, fault(sign, "expected = != < <= > >= or ~ behind %s, found %s", f.Name, sign.shown())
	}
	p.take()
	t := p.take()
	if t.kind != wordToken && t.kind != quotedToken {
		return nil, fault(t, "expected a value behind %s, found %s", sign.text, t.shown())
	}
	ordered := sign.text != "=" && sign.text != "!="
	if t.is("null") {
		if ordered {
			return nil, fault(sign, "null is only compared by = and !=")
		}
		return &Expr{Op: Compare, Field: f, Sign: sign.text, Value: Value{Null: true}}, nil
	}
	if f.Type != Text && sign.text == "~" || f.Type == Flag && ordered {
		return nil, fault(sign, "%s is a %s, which %s does not compare", f.Name, f.Type, sign.text)
	}
	v, err := p.value(f, sign.text, t)
	if err != nil {
		return nil, err
	}
	return &Expr{Op: Compare, Field: f, Sign: sign.text, Value: v}, nil
}

// value returns the value of a token for a field.
func (p *conditionParser) value(f Field, sign string, t token) (v Value, err error) {
	text := strings.ReplaceAll(t.text, `\\`, `\`)
	if t.kind == wordToken {
		text = t.text
	}
	switch f.Type {
	case Text:
		if sign == "~" {
			v.Text, v.Pattern = pattern(t.text)
			return v, nil
		}
		if v.Text = text; f.Words != nil && !slices.Contains(f.Words, text) && text != "" && !ordering(sign) {
			return v, &Error{Column: t.column, Message: fmt.Sprintf("%s is never %q", f.Name, text), Names: nearest(text, f.Words)}
		}
		return v, nil
	case Number:
		if v.Number = number(text); v.Number == nil {
			return v, fault(t, "%s is a number, such as 3 or 2.5, and not %s", f.Name, t.shown())
		}
	case Duration:
		if v.Number = milliseconds(text); v.Number == nil {
			return v, fault(t, "%s is a duration, such as 250ms, 1.5s or 2h, and not %s", f.Name, t.shown())
		}
	case Flag:
		switch {
		case strings.EqualFold(text, "true"):
			v.Number = int64(1)
		case strings.EqualFold(text, "false"):
			v.Number = int64(0)
		default:
			return v, fault(t, "%s is true or false, and not %s", f.Name, t.shown())
		}
	case Time:
		if v.First, v.Last, err = p.clock(text); err != nil {
			return v, fault(t, "%s is a time: %v", f.Name, err)
		}
	}
	return v, nil
}

// ordering reports whether a comparison orders its sides.
func ordering(sign string) bool { return sign[0] == '<' || sign[0] == '>' }

// number returns a number, or nil if the text is none.
func number(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && !strings.ContainsAny(text, "xX_pP") {
		return f
	}
	return nil
}

// milliseconds returns a duration in milliseconds, or nil if the text is none.
func milliseconds(text string) any {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			text = strconv.FormatUint(n*24, 10) + "h"
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil
	}
	if d%time.Millisecond == 0 {
		return d.Milliseconds()
	}
	return float64(d) / float64(time.Millisecond)
}

// pattern returns the text of a ~ without *, or the texts between its stars.
func pattern(text string) (plain string, parts []string) {
	var b strings.Builder
	escaped, stars := false, false
	for _, r := range text {
		switch {
		case !escaped && r == '\\':
			escaped = true
			continue
		case !escaped && r == '*':
			stars = true
			parts = append(parts, b.String())
			b.Reset()
			continue
		case escaped && r != '*' && r != '\\':
			b.WriteByte('\\')
		}
		escaped = false
		b.WriteRune(r)
	}
	if escaped {
		b.WriteByte('\\')
	}
	if !stars {
		return b.String(), nil
	}
	return "", append(parts, b.String())
}
