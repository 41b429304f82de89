package permission_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// A gate with two rules and no person to ask.
func Example() {
	rules, err := permission.ParseRules("rules", strings.NewReader("allow bash git *\ndeny  bash git push *"))
	if err != nil {
		fmt.Println(err)
		return
	}
	gate, err := permission.NewGate(permission.Config{
		Rules:    func(domain.Invocation) domain.RuleSets { return domain.RuleSets{rules} },
		Approver: permission.Headless{},
		Recorder: &facts{},
		Mint:     domain.NewMint(time.Now, entropy()),
		Now:      time.Now,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, command := range []string{"git status", "git push --force", "make"} {
		fmt.Println(gate.Assert(context.Background(), domain.Invocation{Agent: "build"}, permission.Ask{Action: "bash", Resources: []string{command}}))
	}
	// Output:
	// <nil>
	// Permission denied: bash git push --force
	// Permission denied: bash make (no one to ask)
}
