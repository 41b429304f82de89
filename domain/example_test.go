package domain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

func ExampleMake() {
	type input struct {
		City string `json:"city" jsonschema:"the city to look up"`
		Days int    `json:"days,omitempty"`
	}
	weather, err := domain.Make(domain.Spec[input, string]{
		Description: "Tells the weather of a city.",
		Input:       domain.Constrained[input](`{"properties":{"days":{"minimum":1,"maximum":7}}}`),
		Execute: func(_ context.Context, in input, inv domain.Invocation) (string, error) {
			if in.City == "Atlantis" {
				return "", domain.Fail("There is no weather in %s any more.", in.City)
			}
			return fmt.Sprintf("Sunny in %s, says call %s.", in.City, inv.Call), nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{`{"city":"Lisbon"}`, `{"city":"Atlantis"}`, `{"city":7,"days":0}`} {
		bound, err := weather.Bind(json.RawMessage(text))
		if err != nil {
			fmt.Println("not run:", strings.ReplaceAll(err.Error(), "; ", "\n         "))
			continue
		}
		output, err := bound.Run(context.Background(), domain.Invocation{Call: "call_1"})
		if failure, ok := errors.AsType[*domain.Failure](err); ok {
			fmt.Println("failed: ", failure)
			continue
		}
		fmt.Println("ran:    ", output.Content().Text())
	}
	// Output:
	// ran:     Sunny in Lisbon, says call call_1.
	// failed:  There is no weather in Atlantis any more.
	// not run: /city: got number, want string
	//          /days: minimum: got 0, want 1
}

func ExampleRules() {
	rules := domain.Rules{
		{Action: "*", Resource: "*", Effect: domain.Ask},
		{Action: "bash", Resource: "git *", Effect: domain.Allow},
		{Action: "bash", Resource: "git push *", Effect: domain.Deny},
		{Action: "web", Resource: "*", Effect: domain.Deny},
	}
	for _, command := range []string{"git status", "git push", "make"} {
		rule, _ := rules.Evaluate("bash", command)
		fmt.Println(command+":", rule.Effect)
	}
	_, hidden := rules.Hides("web")
	fmt.Println("web is hidden:", hidden)
	// Output:
	// git status: allow
	// git push: deny
	// make: ask
	// web is hidden: true
}

func ExampleParseRef() {
	ref, err := domain.ParseRef("output://evt_01KJM3WJG0V3ZVN9X1C3NQ0F5H/text")
	fmt.Println(ref.Channel(), "of", ref.Settlement(), err)
	_, err = domain.ParseRef("/tmp/output")
	fmt.Println(errors.Is(err, domain.ErrBadRef))
	// Output:
	// text of evt_01KJM3WJG0V3ZVN9X1C3NQ0F5H <nil>
	// true
}
