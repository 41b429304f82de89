package domain_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// A list of patterns holds for a value if the last pattern that matches it has no
// exclamation mark. An empty list holds for every value, and a list that begins with the
// mark for those that no pattern matches.
func TestAListOfPatternsIsDecidedByItsLastMatch(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		patterns, value string
		want            bool
	}{
		{"", "a", true}, {"", "", true}, {"a", "a", true}, {"a", "b", false}, {"a", "", false}, {"a,b", "b", true},
		{"!a", "a", false}, {"!a", "b", true}, {"!a", "", true}, {"!a,!b", "c", true}, {"!a,b", "c", true}, {"!a,!b", "b", false},
		{"gpt-*,!gpt-4*", "gpt-5", true}, {"gpt-*,!gpt-4*", "gpt-4o", false}, {"gpt-*,!gpt-4*,gpt-4o", "gpt-4o", true}, {"gpt-*,!gpt-4*", "claude", false},
		{"!gpt-4*,gpt-4o", "gpt-4o", true}, {"!*", "a", false}, {"*,!a", "a", false}, {"a,!*", "a", false}, {"!!a", "!a", false}, {"!!a", "a", true},
	} {
		var patterns []string
		if row.patterns != "" {
			patterns = strings.Split(row.patterns, ",")
		}
		if got := domain.MatchList(patterns, row.value); got != row.want {
			t.Errorf("MatchList(%q, %q) = %t, want %t", patterns, row.value, got, row.want)
		}
	}
}

// A tool is offered if one alternative holds. Otherwise the first unmet condition of each
// alternative is the reason, in the order agent, model, provider, client, flag, machine.
func TestATurnMeetsOneAlternativeOrHearsWhyNot(t *testing.T) {
	t.Parallel()
	facts := domain.TurnFacts{
		Agent: "plan", Model: "gpt-5", Provider: "acme", Client: "cli", Flags: []string{"x", "y"},
		Has: func(need string) bool { return need == "program:node" || need == "env:A" || need == "bare" },
	}
	where := func(w ...domain.AvailableWhere) domain.Availability { return w }
	for name, row := range map[string]struct {
		available domain.Availability
		want      string
	}{
		"everywhere":     {nil, ""},
		"one that holds": {where(domain.AvailableWhere{}), ""},
		"all fields": {where(domain.AvailableWhere{
			Agents: []string{"plan"}, Models: []string{"gpt-*"}, Providers: []string{"a*"}, Clients: []string{"!web"}, Flags: []string{"x", "!z"}, Needs: []string{"env:A"},
		}), ""},
		"agent":                     {where(domain.AvailableWhere{Agents: []string{"*", "!plan"}, Models: []string{"none"}}), "agent plan is not among *, !plan"},
		"model":                     {where(domain.AvailableWhere{Models: []string{"claude-*"}, Providers: []string{"none"}}), "model gpt-5 is not among claude-*"},
		"provider":                  {where(domain.AvailableWhere{Providers: []string{"x"}, Clients: []string{"x"}}), "provider acme is not among x"},
		"client":                    {where(domain.AvailableWhere{Clients: []string{"!cli"}, Flags: []string{"z"}}), "client cli is not among !cli"},
		"flag not set":              {where(domain.AvailableWhere{Flags: []string{"x", "z"}, Needs: []string{"none:a"}}), "the flag z is not set"},
		"flag set":                  {where(domain.AvailableWhere{Flags: []string{"x", "!y"}}), "the flag y is set"},
		"machine":                   {where(domain.AvailableWhere{Needs: []string{"env:A", "program:gopls"}}), "this machine lacks program:gopls"},
		"one of several":            {where(domain.AvailableWhere{Needs: []string{"program:deno|node|bun"}}), ""},
		"none of several":           {where(domain.AvailableWhere{Needs: []string{"program:deno|bun"}}), "this machine lacks program:deno|bun"},
		"another kind":              {where(domain.AvailableWhere{Needs: []string{"env:node|B"}}), "this machine lacks env:node|B"},
		"without a kind":            {where(domain.AvailableWhere{Needs: []string{"bare"}}), ""},
		"second holds":              {where(domain.AvailableWhere{Agents: []string{"build"}}, domain.AvailableWhere{Agents: []string{"plan"}}), ""},
		"neither holds":             {where(domain.AvailableWhere{Agents: []string{"build"}}, domain.AvailableWhere{Flags: []string{"z"}}), "agent plan is not among build; the flag z is not set"},
		"each from the first field": {where(domain.AvailableWhere{Models: []string{"b"}, Flags: []string{"z"}}, domain.AvailableWhere{Needs: []string{"c:d"}}), "model gpt-5 is not among b; this machine lacks c:d"},
	} {
		var got []string
		for _, c := range row.available.Unmet(facts) {
			got = append(got, c.String())
		}
		if joined := strings.Join(got, "; "); joined != row.want {
			t.Errorf("%s: Unmet = %q, want %q", name, joined, row.want)
		}
	}
}

// Without facts a turn meets every need of the machine and no flag, and an unknown value
// is named as such.
func TestAnUnknownFactMeetsNoPattern(t *testing.T) {
	t.Parallel()
	var facts domain.TurnFacts
	if unmet := (domain.Availability{{Needs: []string{"program:gopls"}, Flags: []string{"!x"}}}).Unmet(facts); unmet != nil {
		t.Errorf("Unmet = %v, want nil", unmet)
	}
	unmet := domain.Availability{{Models: []string{"gpt-*"}}}.Unmet(facts)
	if want := []domain.UnmetCondition{{Kind: "model", Wanted: "gpt-*"}}; !reflect.DeepEqual(unmet, want) || unmet[0].String() != "model not known is not among gpt-*" {
		t.Errorf("Unmet = %v %q, want %v", unmet, unmet[0], want)
	}
}

// An agent that lists tools is offered those alone, and an agent without a list all.
func TestAnAgentIsOfferedTheToolsThatItLists(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		tools []string
		name  domain.Name
		want  bool
	}{{nil, "bash", true}, {[]string{"read", "g*"}, "grep", true}, {[]string{"read"}, "bash", false}, {[]string{"!bash"}, "bash", false}, {[]string{"!bash"}, "read", true}} {
		c, ok := domain.TurnFacts{Agent: "plan", Tools: row.tools}.Lists(row.name)
		if ok != row.want || ok == (c != domain.UnmetCondition{}) {
			t.Errorf("Lists(%s) of %q = %v, %t, want %t", row.name, row.tools, c, ok, row.want)
		}
	}
}
