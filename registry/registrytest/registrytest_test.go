package registrytest

import (
	"bytes"
	"strings"
	"testing"
)

func TestTheRegistryKeepsTheLaws(t *testing.T) { Test(t) }

func TestEachSaboteurIsCaughtByItsLaw(t *testing.T) {
	t.Parallel()
	var report bytes.Buffer
	if err := Report(t.Context(), &report); err != nil {
		t.Fatalf("%v\n%s", err, &report)
	}
	for _, law := range Laws() {
		line := "law " + law.Name + ": " + law.Sentence + " — saboteur caught\n"
		if !strings.Contains(report.String(), line) {
			t.Errorf("Report has no line %q", line)
		}
	}
}

func TestAFailureQuotesTheSentence(t *testing.T) {
	t.Parallel()
	for _, law := range Laws() {
		s, err := Open(t.Context(), law.Limits())
		if err != nil {
			t.Fatal(err)
		}
		law.sabotage(s)
		if err := law.Check(t.Context(), s); err == nil || !strings.Contains(err.Error(), law.Sentence) {
			t.Errorf("the failure of %q is %v, want one that quotes it", law.Name, err)
		}
	}
}
