//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

// answeredCommand fails the script: the tests open pseudo terminals on Linux only.
func answeredCommand(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("no pseudo terminal here")
}
