//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

// answeredCommand needs a pseudo terminal.
func answeredCommand(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("no pseudo terminal here")
}
