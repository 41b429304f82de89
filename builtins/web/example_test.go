package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/web"
	"github.com/settlement-ledger/ledger/domain"
)

// ruled is a permission.Evaluator that decides by rules alone. It refuses what the rules leave to a
// person.
type ruled domain.Rules

func (r ruled) Assert(_ context.Context, _ domain.Invocation, a permission.Ask) error {
	for _, resource := range a.Resources {
		if rule, _ := domain.Rules(r).EvaluateSpelled(a.Action, resource, a.Spellings[resource]); rule.Effect != domain.Allow {
			return &domain.Denied{Action: a.Action, Resource: resource, Rule: rule}
		}
	}
	return nil
}

func (r ruled) Check(_ domain.Invocation, a permission.Ask) permission.Evaluation {
	return permission.EvaluateRules(domain.RuleSets{domain.Rules(r)}, a)
}

// A page of this machine, with a rule that allows its address.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<h1>Title</h1><p>Some <b>text</b>.")
	}))
	defer server.Close()
	rules, err := permission.ParseRules("rules", strings.NewReader("allow webfetch http://127.0.0.1:*\nallow private_address 127.0.0.1:*"))
	if err != nil {
		fmt.Println(err)
		return
	}
	tools, err := web.Tools(web.Config{Permission: ruled(rules)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, url := range []string{server.URL, "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd"} {
		input, err := json.Marshal(map[string]string{"url": url})
		if err != nil {
			fmt.Println(err)
			return
		}
		bound, err := tools["webfetch"].Bind(input)
		if err != nil {
			fmt.Println(err)
			return
		}
		output, err := bound.Run(context.Background(), domain.Invocation{})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(output.Content().Text())
	}
	// Output:
	// # Title
	//
	// Some **text**.
	// Permission denied: webfetch http://169.254.169.254/latest/meta-data/
	// Unable to fetch file:///etc/passwd: only http and https can be fetched
}
