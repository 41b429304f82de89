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

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
)

// hosting serves an embedded store in memory, and returns a connection string
// and the store.
func hosting(t *testing.T, cfg server.Config) (string, *embedded.Store) {
	t.Helper()
	store, err := embedded.Open(t.Context(), "db", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Anonymous = server.Ledger
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

func newMint(now func() time.Time) *domain.Mint { return domain.NewMint(now, rand.Reader) }

// silence returns an address at which somebody listens and nobody answers.
func silence(t *testing.T) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at.Close() })
	return at.Addr().String()
}

// asked runs ledger with a store, variables and arguments in folders of its own.
func asked(t *testing.T, variables []string, args ...string) ran {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), commandPath(), args...)
	cmd.Env = append(os.Environ(), append([]string{"HOME=" + t.TempDir(), "LEDGER_STORE="}, variables...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("ledger %s: %v", strings.Join(args, " "), err)
	}
	return ran{out.Bytes(), errs.Bytes(), cmd.ProcessState.ExitCode()}
}

// examined has the doctor examine a store, and returns what it found.
func examined(t *testing.T, store string, args ...string) (examination, ran) {
	t.Helper()
	got := asked(t, []string{"LEDGER_PATIENCE=1s"}, append([]string{"doctor", "--store", store, "-o", "json"}, args...)...)
	return decodeJSON[examination](t, got.out), got
}

// sick returns what a check found wrong, and fails t if it found nothing.
func (e examination) sick(t *testing.T, check string) checkRow {
	t.Helper()
	for _, c := range e.Checks {
		if c.Check == check && !c.OK {
			return c
		}
	}
	t.Errorf("the doctor found nothing wrong with %s: %+v", check, e.Checks)
	return checkRow{}
}

// checks returns all of one name.
func (e examination) checks(name string) (all []checkRow) {
	for _, c := range e.Checks {
		if c.Check == name {
			all = append(all, c)
		}
	}
	return all
}

func TestTheDoctorSaysWhatStandsInBetween(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	for name, c := range map[string]struct{ at, check, says, advice string }{
		"nobody":      {"127.0.0.1:1", "network", "refused", "start the server"},
		"no name":     {"ledger.invalid:2113", "network", "find the address of ledger.invalid", "check the name"},
		"web server":  {web.Listener.Addr().String(), "node", "it speaks HTTP/1", "something else answers"},
		"black hole":  {silence(t), "node", "says nothing within 1s", "what the server logs"},
		"one of many": {silence(t) + ",127.0.0.1:1", "network", "refused", "start the server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, got := examined(t, "esdb://ada:wonder@"+c.at+"?tls=false")
			found := e.sick(t, c.check)
			if got.exit != fault.ExitFailed || !strings.Contains(found.Detail, c.says) || found.Advice == nil || !strings.Contains(*found.Advice, c.advice) {
				t.Errorf("doctor = %d, %s: %+v, want %q with the advice %q", got.exit, c.check, found, c.says, c.advice)
			}
			e.sick(t, "store")
			e.sick(t, "credentials")
			if strings.Contains(string(got.out)+string(got.err), "wonder") {
				t.Errorf("the doctor tells the password: %s%s", got.out, got.err)
			}
		})
	}
}

// A clock is judged by what the server tells, give or take what that leaves
// open, and by the last record.
func TestTheDoctorComparesClocks(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, time.Minute, -time.Minute} {
		at, store := hosting(t, server.Config{Now: func() time.Time { return time.Now().Add(ahead) }})
		e, _ := examined(t, at)
		clocks := e.checks("clocks")
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
			e, _ := examined(t, at)
			if found := e.sick(t, "clocks"); !strings.Contains(found.Detail, "in the future of this machine") {
				t.Errorf("a record from the future: %+v", found)
			}
		}
	}
}

func TestTheDoctorMeasures(t *testing.T) {
	t.Parallel()
	at, store := hosting(t, server.Config{})
	e, got := examined(t, at, "--write")
	if got.exit != 0 || !e.OK {
		t.Fatalf("doctor = %d %s%s", got.exit, got.out, got.err)
	}
	for check, times := range map[string]int64{"reading": tries, "writing": probes} {
		found := e.checks(check)
		if len(found) != 1 || found[0].Figures["tries"] != times || found[0].Figures["median_us"] <= 0 || found[0].Figures["worst_us"] < found[0].Figures["median_us"] {
			t.Errorf("%s: %+v, want the median and the worst of %d", check, found, times)
		}
	}
	n := 0
	for e, err := range store.Read(t.Context(), doctorStream, 0) {
		if err != nil || e.Kind != "DoctorProbed" {
			t.Errorf("%s holds %+v, %v", doctorStream, e, err)
		}
		n++
	}
	if n != probes {
		t.Errorf("%d records were written, want %d", n, probes)
	}
	if e, _ := examined(t, at); !e.OK {
		t.Errorf("the second time: %+v", e.Checks)
	}
}

// The median of an even number of times is the later of the two in the middle.
func TestTimingsAreInOrder(t *testing.T) {
	t.Parallel()
	if got := (timings{9, 1, 5}); got.median() != 5 || got.worst() != 9 {
		t.Errorf("median and worst of %v are %v and %v", []time.Duration(got), got.median(), got.worst())
	}
	if got := (timings{4, 1}); got.median() != 4 || got[0] != 4 {
		t.Errorf("median of 4 and 1 is %v, and they are in the order %v", got.median(), []time.Duration(got))
	}
}

func TestTheDoctorLooksAtACluster(t *testing.T) {
	t.Parallel()
	node := func(address, state string, alive bool) eventstoredb.Member {
		return eventstoredb.Member{Address: address, State: state, Alive: alive}
	}
	for name, c := range map[string]struct {
		nodes []eventstoredb.Node
		ok    bool
		says  string // empty: nothing is said
	}{
		"one alone":  {[]eventstoredb.Node{{Address: "a:1", Members: []eventstoredb.Member{node("a:1", "Leader", true)}}}, true, ""},
		"untold":     {[]eventstoredb.Node{{Address: "a:1"}, {Address: "b:1"}}, true, ""},
		"whole":      {[]eventstoredb.Node{{Address: "a:1", Members: []eventstoredb.Member{node("a:1", "Follower", true), node("b:1", "Leader", true)}}}, true, "a:1 sees 2 nodes: a:1 follower, b:1 leader"},
		"dead":       {[]eventstoredb.Node{{Address: "a:1", Members: []eventstoredb.Member{node("a:1", "Leader", true), node("b:1", "Follower", false)}}}, false, "b:1 dead"},
		"leaderless": {[]eventstoredb.Node{{Address: "a:1", Members: []eventstoredb.Member{node("a:1", "Unknown", true), node("b:1", "Leader", false)}}}, false, "there is no leader"},
		"strangers": {[]eventstoredb.Node{
			{Address: "a:1", Members: []eventstoredb.Member{node("a:1", "Leader", true)}}, {Address: "b:1", Members: []eventstoredb.Member{node("b:1", "Leader", true)}},
		}, false, "do not follow one leader, but 2"},
	} {
		e := &examination{OK: true}
		e.cluster(c.nodes)
		if c.says == "" {
			if len(e.Checks) > 0 {
				t.Errorf("%s: %+v, want nothing", name, e.Checks)
			}
			continue
		}
		if len(e.Checks) != 1 || e.OK != c.ok || !strings.Contains(e.Checks[0].Detail, c.says) {
			t.Errorf("%s: %+v, want %q, well: %v", name, e.Checks, c.says, c.ok)
		}
	}
}

// A node that answers and tells no time leaves clocks to be judged otherwise, and
// nothing is said of the clock of one that does not answer.
func TestTheDoctorSaysThatAClockIsNotTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		node eventstoredb.Node
		said int
	}{{eventstoredb.Node{Address: "a:1"}, 1}, {eventstoredb.Node{Address: "a:1", Err: eventstoredb.ErrUnreachable}, 0}} {
		e := &examination{OK: true}
		e.clocks([]eventstoredb.Node{c.node})
		if len(e.Checks) != c.said || !e.OK {
			t.Errorf("of %+v: %+v, want %d lines", c.node, e.Checks, c.said)
		}
	}
}

// One address of a name that is open is enough, and the others are told.
func TestTheDoctorTellsEveryAddressOfAName(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	e := &examination{OK: true}
	e.network(eventstoredb.Node{Address: "db:2113", Named: true, Dials: []eventstoredb.DialResult{{Address: "10.0.0.1:2113", Err: refused}, {Address: "10.0.0.2:2113", Took: time.Millisecond}}})
	if got := e.Checks[0]; !got.OK || got.Detail != "db:2113 10.0.0.2 takes connections, after 1ms; 10.0.0.1 does not: dial: connection refused" || got.Figures["took_us"] != 1000 {
		t.Errorf("one of two: %+v", got)
	}
	e.network(eventstoredb.Node{Address: "db:2113", Dials: []eventstoredb.DialResult{{Address: "10.0.0.1:2113", Err: refused}}})
	if got := e.Checks[1]; got.OK || !strings.Contains(got.Detail, "which another node names") {
		t.Errorf("none: %+v", got)
	}
}

// A process that serves a folder and hangs is told, within the patience.
func TestAFolderWhoseServerHangsIsTold(t *testing.T) {
	t.Parallel()
	store := seeded(t)
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
	e, _ := examined(t, store)
	if found := e.sick(t, "store"); !strings.Contains(found.Detail, "by process ") || !strings.Contains(found.Detail, "which is stopped, and it does not answer") {
		t.Errorf("doctor of a store whose server hangs: %+v", found)
	}
	if got := asked(t, []string{"LEDGER_PATIENCE=300ms"}, "call", "ls", "--store", store); got.exit != fault.ExitConflict || !strings.Contains(string(got.err), "by process ") || !strings.Contains(string(got.err), "kill -CONT ") {
		t.Errorf("call ls = %d %s, want it to name the process", got.exit, got.err)
	}
	if err := serving.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if e, got := examined(t, store); len(e.checks("serving")) != 1 || !strings.Contains(e.checks("serving")[0].Detail, "subscribers") {
		t.Errorf("doctor of a store that is served again: %s%s", got.out, got.err)
	}
	if err := serving.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = serving.Wait() // of its kill
	if e, got := examined(t, store); len(e.checks("serving")) != 1 || !strings.Contains(e.checks("serving")[0].Detail, "it was killed, or is about to end") || len(e.checks("reading")) != 1 {
		t.Errorf("doctor of a store whose server was killed: %s%s", got.out, got.err)
	}
}

// How far the answers that are kept beside the log are behind is told.
func TestTheDoctorTellsHowFarKeptAnswersAre(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.Context(), "db", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	mint := newMint(time.Now)
	for n := range 5 {
		if err := store.Append(t.Context(), "s-1", events.Revision(n), events.Record{ID: mint.Event(), Kind: "K", Version: 1, Data: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	for view, position := range map[string]string{"calls": "5", "catalog": "2", "staleness": "what"} {
		if err := store.SaveCheckpoint(t.Context(), view, []byte(`{"position":"`+position+`"}`+"\nanswer")); err != nil {
			t.Fatal(err)
		}
	}
	a := newApp(&render.Printer{Now: time.Now}, nil, rand.Reader)
	for where, folder := range map[string]*stores.Folder{"folder": {}, "database": nil} {
		e := &examination{OK: true}
		s := &stores.Store{Log: store, Checkpoints: store, Folder: folder, Ledger: events.NewLedger(store, mint, time.Now)}
		if err := a.examineViews(t.Context(), e, s); err != nil {
			t.Fatal(err)
		}
		want := "calls is current, catalog is 3 records behind; "
		if folder == nil {
			want = "calls is current, catalog is at position 2 of 5; "
		}
		if len(e.Checks) != 1 || !strings.HasPrefix(e.Checks[0].Detail, want) {
			t.Errorf("in a %s: %+v, want %q", where, e.Checks, want)
		}
	}
}

// A consumer is told with what it has before it.
func TestTheDoctorTellsOfConsumers(t *testing.T) {
	t.Parallel()
	store := seeded(t)
	if got := ledger(t, store, "recover"); got.exit != 0 {
		t.Fatalf("recover = %d %s", got.exit, got.err)
	}
	to := filepath.Join(t.TempDir(), "lines.jsonl")
	if got := ledger(t, store, "publish", "--to", "file:"+to, "--name", "bus", "--from", "now"); got.exit != 0 {
		t.Fatalf("publish = %d %s", got.exit, got.err)
	}
	e, got := examined(t, store, "--write")
	found := e.checks("consumer")
	if got.exit != 0 || len(found) != 1 || found[0].Figures["lag"] != probes || found[0].Detail != "bus is 5 records behind" {
		t.Errorf("doctor = %d %s%s, want one consumer that is %d behind", got.exit, got.out, got.err, probes)
	}
}

// The doctor tells what the database of a folder met the last time that it was
// written to, and that all was well otherwise.
func TestTheDoctorTellsWhatTheDiskMet(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.Context(), "db", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a, s := newApp(&render.Printer{Now: time.Now}, nil, rand.Reader), &stores.Store{Log: store, Checkpoints: store, Folder: &stores.Folder{Log: store}}
	e := &examination{OK: true}
	if err := a.examineDisk(t.Context(), e, s); err != nil || !e.OK || len(e.checks("disk")) != 1 {
		t.Errorf("of a new store the doctor says %+v, %v; want it well", e.Checks, err)
	}
	last := `{"closed":"2026-03-01T12:00:00Z","health":{"failures":2,"last_failure":"no such block","slow":3,"last_slow":"sync of 000007.log","stalls":0}}`
	if err := store.SaveCheckpoint(t.Context(), "store/pace", []byte(last)); err != nil {
		t.Fatal(err)
	}
	e = &examination{OK: true}
	if err := a.examineDisk(t.Context(), e, s); err != nil {
		t.Fatal(err)
	}
	told := e.checks("disk")
	if e.OK || len(told) != 2 || !strings.Contains(told[0].Detail, "no such block") || !strings.Contains(told[1].Detail, "000007.log") || !strings.Contains(told[1].Detail, "2026-03-01") {
		t.Errorf("of a store that met failures the doctor says %+v, want both", told)
	}
}
