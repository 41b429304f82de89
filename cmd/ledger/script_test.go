package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// raceVariable is the environment variable that configures the race detector of a
// program.
const raceVariable = "GORACE"

// TestMain makes the programs under test exit at once: with the race detector, each
// would sleep for a second before it exits.
func TestMain(m *testing.M) {
	if options := os.Getenv(raceVariable); !strings.Contains(options, "atexit_sleep_ms=") {
		if err := os.Setenv(raceVariable, strings.TrimSpace(options+" atexit_sleep_ms=0")); err != nil {
			panic(err)
		}
	}
	testscript.Main(testRun{m}, map[string]func(){"ledger": main, "notes-server": notesServer})
}

// A testRun runs the tests and removes the command that commandPath built for them.
type testRun struct{ *testing.M }

// Run returns the exit status of the tests. It gives the commands a cache folder of their own.
func (r testRun) Run() int {
	defer func() { _ = os.RemoveAll(plainFolder) }() // "" if commandPath built no command
	cache, err := os.MkdirTemp("", "ledger-cache-")
	if err == nil {
		defer os.RemoveAll(cache)
		err = os.Setenv("XDG_CACHE_HOME", cache)
	}
	if err != nil {
		panic(err)
	}
	return r.M.Run()
}

// plainFolder is the temporary folder of the command that commandPath builds, and ""
// before that.
var plainFolder string

// commandPath returns the path of the ledger command that the tests run as a process.
// Without the race detector it is the test binary itself. With it, commandPath builds
// the command without the detector, which takes a quarter of the CPU time. The detector
// still covers the same code: raceScripts, the tests within the process and, with the
// long counts, all tests use it.
var commandPath = sync.OnceValue(func() string {
	const self = "ledger" // the test binary, which testscript.Main puts into PATH
	if !raceEnabled || os.Getenv(longVariable) != "" {
		return self
	}
	dir, err := os.MkdirTemp("", "ledger-command-")
	if err != nil {
		return self
	}
	plainFolder = dir
	path := filepath.Join(dir, "ledger")
	if err := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".").Run(); err != nil {
		return self // without a toolchain the tests are slower and still correct
	}
	return path
})

// raceScripts lists the scripts that run with the race detector in each race test. They
// cover sessions, servers of a folder and of a node, publishing and imports; the other
// scripts take the same paths.
var raceScripts = []string{"run", "serve", "servenode", "publish", "import"}

// Each script in testdata/script shows how one subcommand behaves, as a sequence of
// commands with their expected output and exit status.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Setenv("LEDGER_STORE", filepath.Join(e.WorkDir, "store"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("TZ", "UTC")
			e.Setenv(raceVariable, os.Getenv(raceVariable))
			name := strings.TrimPrefix(filepath.Base(e.WorkDir), "script-")
			if plain := commandPath(); filepath.IsAbs(plain) && !slices.Contains(raceScripts, name) {
				e.Setenv("PATH", filepath.Dir(plain)+string(os.PathListSeparator)+e.Getenv("PATH"))
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"seed":        seedCommand,
			"stray":       strayCommand,
			"served":      servedCommand,
			"certificate": certificateCommand,
			"await":       awaitCommand,
			"recorded":    recordedCommand,
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

// seedCommand makes a store with the history that seed writes.
//
// Usage: seed DIR
func seedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: seed DIR")
	}
	ts.Check(seed(ts.MkAbs(args[0])))
}

// strayCommand makes a store whose one session holds the settlement of a call that no
// reply asked for, which verify reports as an exception.
//
// Usage: stray DIR
func strayCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stray DIR")
	}
	ctx := context.Background()
	store, err := embedded.Open(ctx, ts.MkAbs(args[0]), embedded.Config{})
	ts.Check(err)
	now := time.Date(2024, 5, 1, 10, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	ledger := events.NewLedger(store, domain.NewMint(clock, rand.NewChaCha8([32]byte{2})), clock)
	session := ledger.Mint().Session()
	opened := ledger.Draft(events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}}, domain.EventID{})
	settled := ledger.Draft(events.CallSettled{Message: ledger.Mint().Message(), Call: "toolu_9", Tool: "read", Outcome: domain.Succeeded, Began: true}, opened.ID)
	_, err = ledger.Append(ctx, events.SessionStream(session), 0, opened, settled)
	ts.Check(errors.Join(err, store.Close()))
}
