package query

import (
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A shortened ID is a prefix of an ID, with or without its type prefix, a suffix of it,
// or both around an ellipsis, in either case of letters. A middle part matches no ID.
func TestAShortenedIDMeansWhatTablesPrint(t *testing.T) {
	t.Parallel()
	const id = "ses_01HQWY5DF89BEGSP3JEKB7116A"
	for _, good := range []string{
		id, strings.ToLower(id), render.Shorten(id), "ses_...B7116A", "B7116A", "b7116a", "01HQWY5D", "ses_01HQ", "ses_01HQ…16A", "…6A",
	} {
		if !index.Abbreviates(good, id) {
			t.Errorf("Abbreviates(%q, %q) = false, want true", good, id)
		}
	}
	for _, bad := range []string{"trn_…B7116A", "F89B", "ses_01HQX", id + "0", "ses_01HQWY5DF89BEGSP3JEKB7116A…B7116A"} {
		if index.Abbreviates(bad, id) {
			t.Errorf("Abbreviates(%q, %q) = true, want false", bad, id)
		}
	}
}

// pick returns the one candidate that an ID fits, lists the candidates of an ambiguous
// ID, and distinguishes an unknown ID from an empty one.
func TestAnIDMeansOneThingOrSaysWhichItCouldMean(t *testing.T) {
	t.Parallel()
	all := []candidate[int]{{1, []string{"ses_AAA1"}, "one"}, {2, []string{"ses_AAB2"}, "two"}, {3, []string{"ses_AAA12"}, "three"}}
	for id, want := range map[string]int{"ses_AAB": 2, "@last": 3, "ses_aaa1": 1, "12": 3, "AAB2": 2} {
		if got, err := pick("session", id, all); got != want || err != nil {
			t.Errorf("pick(%q) = %d, %v, want %d", id, got, err, want)
		}
	}
	_, err := pick("session", "AAA", all)
	if f := fault.Of(err); f.Exit != fault.ExitUsage || f.Code != "ambiguous" || len(f.Candidates) != 2 {
		t.Errorf("pick(AAA) = %v, exit %d, candidates %v; want two candidates", err, f.Exit, f.Candidates)
	}
	for _, id := range []string{"nothing", "trn_AAA1"} {
		if _, err := pick("session", id, all); fault.Of(err).Exit != fault.ExitNotFound {
			t.Errorf("pick(%q) = %v, want not found", id, err)
		}
	}
	if _, err := pick("session", "", all); fault.Of(err).Exit != fault.ExitUsage {
		t.Errorf(`pick("") = %v, want a usage error`, err)
	}
	if _, err := pick("session", "@last", all[:0]); fault.Of(err).Exit != fault.ExitNotFound {
		t.Errorf("pick(@last) of nothing = %v, want not found", err)
	}
}
