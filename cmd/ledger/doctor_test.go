package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/cmd/ledger/doctor"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// probeStream is the stream to which doctor --write appends its records.
const probeStream = "doctor-probe"

// doctorProbes is the number of records that doctor --write appends.
const doctorProbes = 5

// serveStore serves an embedded store in memory, with every anonymous client in the role
// Ledger. It returns the connection string and the store. The server and the store are
// closed when the test ends.
func serveStore(t *testing.T, cfg server.Config) (string, *embedded.Store) {
	t.Helper()
	store, err := embedded.Open(t.Context(), "db", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Anonymous = auth.Ledger // the test clients need no user
	server, err := server.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(at); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return "esdb://" + at.Addr().String() + "?tls=false", store
}

// newMint returns a mint with a random entropy source.
func newMint(now func() time.Time) *domain.Mint { return domain.NewMint(now, rand.Reader) }

// silentListener returns the address of a listener that accepts no connection: clients
// connect, through the backlog of the system, and receive no response.
func silentListener(t *testing.T) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at.Close() })
	return at.Addr().String()
}

// ledgerWithEnv runs ledger with arguments in a new home and no default store. variables are
// added to the environment of the process.
func ledgerWithEnv(t *testing.T, variables []string, args ...string) commandResult {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), commandPath(), args...)
	cmd.Env = append(os.Environ(), append([]string{"HOME=" + t.TempDir(), "LEDGER_STORE="}, variables...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("ledger %s: %v", strings.Join(args, " "), err)
	}
	return commandResult{out.Bytes(), errs.Bytes(), cmd.ProcessState.ExitCode()}
}

// runDoctor runs ledger doctor on a store and returns its report and the result of the
// process.
func runDoctor(t *testing.T, store string, args ...string) (doctor.Report, commandResult) {
	t.Helper()
	got := ledgerWithEnv(t, []string{"LEDGER_PATIENCE=1s"}, append([]string{"doctor", "--store", store, "-o", "json"}, args...)...)
	return decodeJSON[doctor.Report](t, got.out), got
}

// failedCheck returns the first failed check of a name, and fails the test if a report
// has none.
func failedCheck(t *testing.T, e doctor.Report, check string) doctor.Check {
	t.Helper()
	for _, c := range e.Checks {
		if c.Check == check && !c.OK {
			return c
		}
	}
	t.Errorf("the doctor found nothing wrong with %s: %+v", check, e.Checks)
	return doctor.Check{}
}

// checksNamed returns the checks of a name in a report.
func checksNamed(e doctor.Report, name string) (all []doctor.Check) {
	for _, c := range e.Checks {
		if c.Check == name {
			all = append(all, c)
		}
	}
	return all
}

// The doctor distinguishes a refused connection, an unknown host name, a web server and
// a server that does not respond, gives advice for each, and never prints the password.
func TestTheDoctorSaysWhatStandsInBetween(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	for name, c := range map[string]struct{ at, check, says, advice string }{
		"nobody":      {"127.0.0.1:1", "network", "refused", "start the server"},
		"no name":     {"ledger.invalid:2113", "network", "find the address of ledger.invalid", "check the name"},
		"web server":  {web.Listener.Addr().String(), "node", "it speaks HTTP/1", "another program answers"},
		"black hole":  {silentListener(t), "node", "sends nothing within 1s", "read the log of the server"},
		"one of many": {silentListener(t) + ",127.0.0.1:1", "network", "refused", "start the server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, got := runDoctor(t, "esdb://ada:wonder@"+c.at+"?tls=false")
			found := failedCheck(t, e, c.check)
			if got.exit != fault.ExitFailed || !strings.Contains(found.Detail, c.says) || found.Advice == nil || !strings.Contains(*found.Advice, c.advice) {
				t.Errorf("doctor = %d, %s: %+v, want %q with the advice %q", got.exit, c.check, found, c.says, c.advice)
			}
			failedCheck(t, e, "store")
			failedCheck(t, e, "credentials")
			if strings.Contains(string(got.out)+string(got.err), "wonder") {
				t.Errorf("the doctor tells the password: %s%s", got.out, got.err)
			}
		})
	}
}

// The doctor estimates the clock difference from a server's response, within the
// uncertainty that it prints, and reports a last record whose time lies in the future.
func TestTheDoctorComparesClocks(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, time.Minute, -time.Minute} {
		at, store := serveStore(t, server.Config{Now: func() time.Time { return time.Now().Add(ahead) }})
		e, _ := runDoctor(t, at)
		clocks := checksNamed(e, "clocks")
		if len(clocks) != 1 || clocks[0].OK != (ahead == 0) {
			t.Fatalf("a server that is %s ahead: %+v, want one check", ahead, clocks)
		}
		told, within := clocks[0].Figures["ahead_us"], clocks[0].Figures["within_us"]
		if within <= 0 || within > 5_000_000 || told < ahead.Microseconds()-within || told > ahead.Microseconds()+within {
			t.Errorf("a server that is %s ahead: %d µs, give or take %d", ahead, told, within)
		}
		if ahead == 0 {
			r := events.Record{ID: newMint(time.Now).Event(), Kind: "K", Version: 1, Time: time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond), Data: []byte("{}")}
			if err := store.Append(t.Context(), "s-1", 0, r); err != nil {
				t.Fatal(err)
			}
			e, _ := runDoctor(t, at)
			if found := failedCheck(t, e, "clocks"); !strings.Contains(found.Detail, "ahead of this machine's clock") {
				t.Errorf("a record from the future: %+v", found)
			}
		}
	}
}

// The doctor reports the median and the worst latency of reads, and with --write of
// appends. --write appends doctorProbes records and no others.
func TestTheDoctorMeasures(t *testing.T) {
	t.Parallel()
	at, store := serveStore(t, server.Config{})
	e, got := runDoctor(t, at, "--write")
	if got.exit != 0 || !e.OK {
		t.Fatalf("doctor = %d %s%s", got.exit, got.out, got.err)
	}
	for check, times := range map[string]int64{"reading": 9, "writing": 5} {
		found := checksNamed(e, check)
		if len(found) != 1 || found[0].Figures["tries"] != times || found[0].Figures["median_us"] <= 0 || found[0].Figures["worst_us"] < found[0].Figures["median_us"] {
			t.Errorf("%s: %+v, want the median and the worst of %d", check, found, times)
		}
	}
	n := 0
	for e, err := range store.Read(t.Context(), probeStream, 0) {
		if err != nil || e.Kind != "DoctorProbed" {
			t.Errorf("%s holds %+v, %v", probeStream, e, err)
		}
		n++
	}
	if n != 5 {
		t.Errorf("%d records were written, want %d", n, 5)
	}
	if e, _ := runDoctor(t, at); !e.OK {
		t.Errorf("the second time: %+v", e.Checks)
	}
}

// The doctor and other commands name a process that serves a folder and is stopped,
// within LEDGER_PATIENCE. The doctor also recognizes a server that was killed.
func TestAFolderWhoseServerHangsIsTold(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	serving := exec.CommandContext(t.Context(), commandPath(), "serve", "--store", store, "--listen", "127.0.0.1:0")
	pipe, err := serving.StdoutPipe()
	if err == nil {
		err = serving.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(pipe); !lines.Scan() {
		t.Fatal("serve tells nothing")
	}
	if err := serving.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	e, _ := runDoctor(t, store)
	if found := failedCheck(t, e, "store"); !strings.Contains(found.Detail, "by process ") || !strings.Contains(found.Detail, "which is stopped, and it does not answer") {
		t.Errorf("doctor of a store whose server hangs: %+v", found)
	}
	if got := ledgerWithEnv(t, []string{"LEDGER_PATIENCE=300ms"}, "call", "ls", "--store", store); got.exit != fault.ExitConflict || !strings.Contains(string(got.err), "by process ") || !strings.Contains(string(got.err), "kill -CONT ") {
		t.Errorf("call ls = %d %s, want it to name the process", got.exit, got.err)
	}
	if err := serving.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if e, got := runDoctor(t, store); len(checksNamed(e, "serving")) != 1 || !strings.Contains(checksNamed(e, "serving")[0].Detail, "subscribers") {
		t.Errorf("doctor of a store that is served again: %s%s", got.out, got.err)
	}
	if err := serving.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = serving.Wait() // fails, since the process was killed
	if e, got := runDoctor(t, store); len(checksNamed(e, "serving")) != 1 || !strings.Contains(checksNamed(e, "serving")[0].Detail, "it was killed or is ending") || len(checksNamed(e, "reading")) != 1 {
		t.Errorf("doctor of a store whose server was killed: %s%s", got.out, got.err)
	}
}

// The doctor lists each consumer with the number of records that it has yet to publish.
func TestTheDoctorTellsOfConsumers(t *testing.T) {
	t.Parallel()
	store := newSeededStore(t)
	if got := ledger(t, store, "recover"); got.exit != 0 {
		t.Fatalf("recover = %d %s", got.exit, got.err)
	}
	to := filepath.Join(t.TempDir(), "lines.jsonl")
	if got := ledger(t, store, "publish", "--to", "file:"+to, "--name", "bus", "--from", "now"); got.exit != 0 {
		t.Fatalf("publish = %d %s", got.exit, got.err)
	}
	e, got := runDoctor(t, store, "--write")
	found := checksNamed(e, "consumer")
	if got.exit != 0 || len(found) != 1 || found[0].Figures["lag"] != 5 || found[0].Detail != "bus is 5 records behind" {
		t.Errorf("doctor = %d %s%s, want one consumer that is %d behind", got.exit, got.out, got.err, 5)
	}
}
