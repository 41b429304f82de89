//go:build race && unix

package clientrace

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// variable is the environment variable that configures the race detector.
const variable = "GORACE"

// init executes the program again with the suppressions, as the package doc
// describes. The new program replaces this one. If it cannot start, init prints
// the error and ends the program with status 2.
func init() {
	options := os.Getenv(variable)
	if strings.Contains(options, "suppressions=") {
		return
	}
	_, source, _, _ := runtime.Caller(0)
	file := filepath.Join(filepath.Dir(source), "suppressions.txt")
	if _, err := os.Stat(file); err != nil {
		return // built with -trimpath, or moved away from its source
	}
	program, err := os.Executable()
	if err == nil {
		err = os.Setenv(variable, strings.TrimSpace(options+" suppressions="+strconv.Quote(file)))
	}
	if err == nil {
		err = syscall.Exec(program, os.Args, os.Environ())
	}
	// The tests would report the races of the client as ours.
	fmt.Fprintf(os.Stderr, "execute with races of the EventStoreDB client excluded: %v\n", err)
	os.Exit(2)
}
