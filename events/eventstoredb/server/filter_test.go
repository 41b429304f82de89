package server

import (
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/settlement-ledger/ledger/events"
)

// The filter that the store applies is as narrow as the table says for each
// expression.
func TestFilterPushdownOfExpressions(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]struct{ streams, kinds events.Filter }{
		`^(?:Apple|Apricot|Berry)$`:     {events.Filter{Prefixes: []string{"Apple", "Apricot", "Berry"}}, events.Filter{Kinds: []string{"Apple", "Apricot", "Berry"}}},
		`^a$`:                           {events.Filter{Prefixes: []string{"a"}}, events.Filter{Kinds: []string{"a"}}},
		`^session-.*`:                   {events.Filter{Prefixes: []string{"session-"}}, events.Filter{}},
		`^ns\.(?:session|layer)(?:-|$)`: {events.Filter{Prefixes: []string{"ns.session-", "ns.session", "ns.layer-", "ns.layer"}}, events.Filter{}},
		`^a[bc]d?`:                      {events.Filter{Prefixes: []string{"abd", "ab", "acd", "ac"}}, events.Filter{}},
		`^[^$]`:                         {},
		`^(?i:a)b$`:                     {},
		`a$`:                            {},
		`^a|b`:                          {},
		`(?m)^a$`:                       {},
		"^a|":                           {},
		"^\ufffd$":                      {},
	} {
		f := filter{regex: regexp.MustCompile(expression)}
		if diff := cmp.Diff(f.pushdown(), want.streams); diff != "" {
			t.Errorf("by stream, %s: got − want +\n%s", expression, diff)
		}
		f.byKind = true
		if diff := cmp.Diff(f.pushdown(), want.kinds); diff != "" {
			t.Errorf("by kind, %s: got − want +\n%s", expression, diff)
		}
	}
	if got := (&filter{byKind: true, prefixes: []string{"A"}}).pushdown(); !got.IsZero() {
		t.Errorf("prefixes of kinds are asked for as %+v, which a store has no filter for", got)
	}
}

// The filter that the store applies admits every entry that the expression
// matches.
func TestFilterPushdownAdmitsEveryMatch(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	asked, admitted := 0, 0
	tries := 4_000
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		tries = 20_000
	}
	for range tries {
		text := randomExpression(random, 3)
		if random.IntN(4) > 0 {
			text = "^" + text
		}
		if random.IntN(2) > 0 {
			text += "$"
		}
		f := filter{regex: regexp.MustCompile(text), byKind: random.IntN(2) > 0}
		narrow := f.pushdown()
		if err := narrow.Valid(); err != nil {
			t.Fatalf("seed %d: %s is asked for as %+v: %v", seed, text, narrow, err)
		}
		if narrow.IsZero() {
			continue
		}
		asked++
		for range 20 {
			name := name(random)
			h := events.Header{Stream: events.Stream(name), Kind: name}
			if !f.matches(h) {
				continue
			}
			if admitted++; !narrow.Matches(h) {
				t.Fatalf("seed %d: %s admits %q, and the store is asked for %+v", seed, text, name, narrow)
			}
		}
	}
	if asked == 0 || admitted == 0 {
		t.Errorf("a store was asked for %d expressions, which admitted %d names, want some", asked, admitted)
	}
}

func name(random *rand.Rand) string {
	var b strings.Builder
	for range 1 + random.IntN(4) {
		b.WriteString([]string{"a", "b", "ab", "-", "A", "\xff", "\ufffd", "é"}[random.IntN(8)])
	}
	return b.String()
}

// randomExpression returns a regular expression of a depth.
func randomExpression(random *rand.Rand, depth int) string {
	if depth == 0 {
		return []string{"a", "b", "ab", "-", "[ab]", "(?i:a)", ".", "\ufffd", "$", "", `[^a]`, "é"}[random.IntN(12)]
	}
	var parts []string
	for range 1 + random.IntN(3) {
		parts = append(parts, randomExpression(random, depth-1))
	}
	switch random.IntN(4) {
	case 0:
		return "(?:" + strings.Join(parts, "|") + ")"
	case 1:
		return "(" + strings.Join(slices.Clone(parts), "") + ")?"
	case 2:
		return "(?:" + strings.Join(parts, "") + ")*"
	}
	return strings.Join(parts, "")
}
