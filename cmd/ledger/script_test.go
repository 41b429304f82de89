package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// raceVariable configures the race detector of a program.
const raceVariable = "GORACE"

// TestMain lets the programs that the tests start end at once: with the race
// detector, each would sleep for a second before it exits.
func TestMain(m *testing.M) {
	if options := os.Getenv(raceVariable); !strings.Contains(options, "atexit_sleep_ms=") {
		if err := os.Setenv(raceVariable, strings.TrimSpace(options+" atexit_sleep_ms=0")); err != nil {
			panic(err)
		}
	}
	testscript.Main(m, map[string]func(){"ledger": main})
}

// The stories of the subcommands, one file each.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Setenv("LEDGER_STORE", filepath.Join(e.WorkDir, "store"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv(raceVariable, os.Getenv(raceVariable))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"seed":        seedCommand,
			"served":      servedCommand,
			"certificate": certificateCommand,
			"await":       awaitCommand,
			"alike":       alikeCommand,
			"append":      appendCommand,
			"reports":     reportsCommand,
			"terminate":   terminateCommand,
			"answered":    answeredCommand,
		},
		RequireUniqueNames: true,
		UpdateScripts:      os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// seedCommand makes the store of history_test.go in a folder: seed DIR.
func seedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: seed DIR")
	}
	ts.Check(seed(ts.MkAbs(args[0])))
}
