package workspace_test

import (
	"fmt"
	"os"

	"github.com/settlement-ledger/ledger/builtins/workspace"
)

// A path inside, one that escapes, and one outside that needs a permission.
func Example() {
	dir, err := os.MkdirTemp("", "workspace")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	root, err := workspace.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer root.Close()
	inside, err := root.Resolve("src/../main.go")
	fmt.Println(inside.Resource, err)
	_, err = root.Resolve("../main.go")
	fmt.Println(err)
	outside, err := root.Resolve("/etc/hosts")
	fmt.Println(outside.Resource, outside.External, err)
	// Output:
	// main.go <nil>
	// resolve ../main.go: relative_escape: the path leaves the workspace by its parent folders
	// /etc/hosts /etc/* <nil>
}
