package index

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// said returns a history with one session that has each of the texts as a prompt.
func said(texts ...string) []events.Envelope {
	log := projectionstest.NewLog(3)
	session := log.Mint.Session()
	log.Add(events.SessionStream(session), events.SessionOpened{Agent: "build"})
	for _, text := range texts {
		log.Add(events.SessionStream(session), events.PromptAdmitted{Message: log.Mint.Message(), Text: text})
	}
	return log.Envelopes()
}

// found returns the numbers, from 0, of the prompts of said that a text finds.
func found(t *testing.T, s *Snapshot, text string) (numbers []int) {
	t.Helper()
	for _, one := range value[[]Text](t)(s.Search(TextQuery{Phrase: value[Phrase](t)(NewPhrase(text))})) {
		position, _ := one.Position.Parts()
		numbers = append(numbers, int(position)-2)
	}
	return numbers
}

// A search finds the texts with the words of a text, whatever other characters it has: it
// never is an expression of FTS5.
func TestASearchFindsWordsAndIsNoExpression(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, said("run rm -rf build.log now", "Déjà vu", "one two three", "NEAR the end AND after", `quote " it`, "nul\x00byte", strings.Repeat("x ", 5000)+"needle", "naïve 日本語 text"))
	s := snapshot(t, newIndex(t, l))
	for _, c := range []struct {
		text string
		want []int
	}{
		{"rm -rf", []int{0}}, {"RM (rf)", []int{0}}, {"rf rm", nil}, {"build.log", []int{0}}, {"buil", nil}, {"buil*", []int{0}}, {"deja", []int{1}}, {"one two", []int{2}}, {"one three", nil},
		{"near", []int{3}}, {"NEAR(the end)", []int{3}}, {`end" AND "after`, []int{3}}, {`one" OR "near`, nil}, {`"quote"`, []int{4}}, {"text:one", nil}, {"one NOT two", nil}, {"nul byte", []int{5}}, {"nul\x00byte", []int{5}},
		{"needle", nil}, {"^one", []int{2}}, {"one + two", []int{2}}, {"日本語", []int{7}}, {"one\xfftwo", []int{2}}, {"{one two}", []int{2}}, {"one*two", []int{2}}, {"-one", []int{2}},
	} {
		if got := found(t, s, c.text); !slices.Equal(got, c.want) {
			t.Errorf("search %q finds %v, want %v", c.text, got, c.want)
		}
	}
	if n, err := s.LongTexts(); n != 1 || err != nil {
		t.Errorf("LongTexts = %d, %v, want 1", n, err)
	}
	for _, text := range []string{"", "&& || -", "\x00", `"`} {
		if _, err := NewPhrase(text); !errors.Is(err, ErrNoWord) {
			t.Errorf("NewPhrase(%q) = %v, want ErrNoWord", text, err)
		}
	}
	if _, err := NewPhrase(strings.Repeat("a", maxPhrase+1)); !errors.Is(err, ErrLongPhrase) {
		t.Errorf("NewPhrase of a long text = %v", err)
	}
	if _, err := s.Search(TextQuery{Phrase: value[Phrase](t)(NewPhrase(strings.Repeat("a ", maxPhrase/2)))}); err != nil {
		t.Errorf("Search of many words = %v", err)
	}
}

// The three parts of a snippet are next to each other in the text and bounded, also if the
// text has the marks of snippets.
func TestASnippetIsAPartOfItsText(t *testing.T) {
	t.Parallel()
	texts := []string{
		"the needle is here", strings.Repeat("long ", 500) + "needle " + strings.Repeat("more ", 500), strings.Repeat("é", 3000) + " needle" + strings.Repeat("ü", 1) + " needle " + strings.Repeat("日", 900), "needle",
		"a\nneedle\tb",
	}
	l, _ := newLedger(t, said(append(texts, "x"+endMark+" needle "+beginMark+cutMark)...))
	s := snapshot(t, newIndex(t, l))
	all := value[[]Text](t)(s.Search(TextQuery{Phrase: value[Phrase](t)(NewPhrase("needle"))}))
	if len(all) != len(texts)+1 {
		t.Fatalf("%d texts are found, want %d", len(all), len(texts)+1)
	}
	for i, text := range texts {
		one := all[i]
		if !strings.Contains(text, one.Before+one.Match+one.After) || one.Match != "needle" {
			t.Errorf("the snippet %q|%q|%q is no part of the text %d", one.Before, one.Match, one.After, i)
		}
		if len(one.Before) > snippetBytes || len(one.After) > snippetBytes {
			t.Errorf("the snippet of text %d has %d and %d bytes", i, len(one.Before), len(one.After))
		}
		if whole := one.Before+one.Match+one.After == text; whole == (one.CutBefore || one.CutAfter) {
			t.Errorf("the snippet of text %d: cut %v and %v, and whole %v", i, one.CutBefore, one.CutAfter, whole)
		}
	}
}

// A search and the flag of calls select by their other conditions too, and an index without
// text is an ErrNoText.
func TestASearchSelectsByPlace(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(17, 700))
	x := newIndex(t, l)
	s := snapshot(t, x)
	phrase := value[Phrase](t)(NewPhrase("It ended"))
	all := value[[]Text](t)(s.Search(TextQuery{Phrase: phrase}))
	if len(all) < 10 {
		t.Fatalf("%d texts are found", len(all))
	}
	agents := map[string]string{}
	for _, line := range table(t, x, "SELECT session, agent FROM sessions") {
		session, agent, _ := strings.Cut(line, "|")
		agents[session] = agent
	}
	for _, q := range []TextQuery{
		{Session: all[3].Session}, {From: all[5].Time}, {To: all[5].Time}, {Calls: CallQuery{Tool: all[2].Tool}}, {Calls: CallQuery{Outcomes: []domain.Outcome{domain.Failed}}}, {Limit: 3}, {Limit: 3, Skip: 2}, {Skip: 5}, {Agent: "build"}, {Agent: "other"},
	} {
		q.Phrase = phrase
		var want []string
		for _, one := range all {
			c, ok, err := s.Call(calls.Key{Session: one.Session, Message: one.Message, Call: one.Call})
			noError(t, err)
			if (q.Session.IsZero() || one.Session == q.Session) && !one.Time.Before(q.From) && (q.To.IsZero() || one.Time.Before(q.To)) &&
				(q.Calls.Tool == "" || ok && c.Tool == q.Calls.Tool) && (q.Calls.Outcomes == nil || ok && c.Settlement.Outcome == domain.Failed) &&
				(q.Agent == "" || agents[one.Session.String()] == q.Agent) {
				want = append(want, fmt.Sprint(one))
			}
		}
		same(t, fmt.Sprintf("Search(%+v)", q), lines(value[[]Text](t)(s.Search(q)), func(one Text) string { return fmt.Sprint(one) }), lastOf(want[:max(0, len(want)-q.Skip)], q.Limit))
	}
	noError(t, x.RebuildWithoutText(t.Context(), l, nil))
	without := snapshot(t, x)
	if _, err := without.Search(TextQuery{Phrase: phrase}); !errors.Is(err, ErrNoText) || without.HasText() {
		t.Errorf("Search without text = %v", err)
	}
}
