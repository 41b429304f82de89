package lawtest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// even is a law of numbers, with the saboteur it is given.
func even(saboteur int) Law[int] {
	subject := func(n int) func(context.Context) (int, error) {
		return func(context.Context) (int, error) { return n, nil }
	}
	return Law[int]{
		Name: "even", Sentence: "A number is even.", Correct: subject(2), Saboteur: subject(saboteur),
		Verify: func(_ context.Context, n int) error {
			if n%2 != 0 {
				return errors.New("it is odd")
			}
			return nil
		},
	}
}

func TestReportNamesLawAndVerdict(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Report(t.Context(), &out, []Law[int]{even(3)}); err != nil || out.String() != "law even: A number is even. — saboteur caught\n" {
		t.Errorf("Report = %v and writes %q", err, &out)
	}
}

func TestSaboteurThatKeepsItsLawFailsTheReport(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := Report(t.Context(), &out, []Law[int]{even(4)}); err == nil || !strings.Contains(out.String(), "saboteur not caught") {
		t.Errorf("Report = %v and writes %q, want an error", err, &out)
	}
}

func TestLawWithoutSaboteurFailsTheReport(t *testing.T) {
	t.Parallel()
	law := even(3)
	law.Saboteur = nil
	if err := Report(t.Context(), new(bytes.Buffer), []Law[int]{law}); err == nil {
		t.Error("Report = nil, want an error")
	}
}

func TestCorrectSubjectThatBreaksItsLawFailsTheReport(t *testing.T) {
	t.Parallel()
	law := even(3)
	law.Correct = law.Saboteur
	if err := Report(t.Context(), new(bytes.Buffer), []Law[int]{law}); err == nil {
		t.Error("Report = nil, want an error")
	}
}

func TestSuiteOfASoundLawPasses(t *testing.T) {
	t.Parallel()
	TestSuite(t, []Law[int]{even(3)})
	Test(t, []Law[int]{even(3)}, func(*testing.T, Law[int]) int { return 8 })
}
