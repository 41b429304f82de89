package skills_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/builtins/skills"
)

// A skill of a project.
func Example() {
	project, err := os.MkdirTemp("", "skills")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(project)
	folder := filepath.Join(project, ".ledger", "skills", "release")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		fmt.Println(err)
		return
	}
	text := "---\nname: release\ndescription: Makes a release of this project.\n---\nRun the tests, then tag the commit.\n"
	if err := os.WriteFile(filepath.Join(folder, "SKILL.md"), []byte(text), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range skills.Load(skills.Folders{Project: project}).Skills() {
		fmt.Println(s.Name, "-", s.Description)
	}
	// Output:
	// release - Makes a release of this project.
}
