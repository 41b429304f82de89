package agents_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/runner/agents"
)

// An agent of a project, beside the built-in ones.
func Example() {
	project, err := os.MkdirTemp("", "agents")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(project)
	folder := filepath.Join(project, ".ledger", "agents")
	file := "---\ndescription: Reviews a change.\nmode: subagent\nrules:\n  - deny edit *\n---\nYou review the change.\n"
	if err := os.MkdirAll(folder, 0o755); err != nil {
		fmt.Println(err)
		return
	}
	if err := os.WriteFile(filepath.Join(folder, "reviewer.md"), []byte(file), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	set := agents.Load(agents.LoadConfig{ProjectFolder: project})
	for _, a := range set.All() {
		rule, _ := a.RuleSets().Evaluate("edit", "main.go")
		fmt.Println(a.Name, a.Mode, rule.Effect)
	}
	// Output:
	// build primary allow
	// general subagent allow
	// plan primary deny
	// reviewer subagent deny
}
