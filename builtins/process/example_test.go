//go:build unix

package process_test

import (
	"context"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/builtins/process"
)

// A command that leaves a child behind, which does not outlive it.
func Example() {
	r, err := process.Run(context.Background(), process.Command{
		Program: "/bin/sh",
		Args:    []string{"-c", "echo out; echo err >&2; sleep 600 & exit 3"},
		Timeout: time.Minute,
	})
	fmt.Printf("%q, exit %d, %d bytes lost, %v\n", r.Output.Head, r.Exit, r.Output.Lost, err)
	// Output: "out\nerr\n", exit 3, 0 bytes lost, <nil>
}
