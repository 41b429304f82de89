package clients_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// A suite is the test suite of an official Go client, in the source of its module.
type suite struct {
	name    string // in docs/eventstoredb.md
	module  string
	version string
	sum     string // of the module, as in go.sum; empty: go.mod of this module pins it
	folder  string // of the tests
	tests   string // pattern of the tests of functions that the server has
	without string // pattern of tests to leave out; empty: run all
	env     []string
	servers []served
	// authority is the file of the certificate authority that the tests read;
	// empty: they do not check certificates.
	authority  string
	notPassing map[string]ending // tests that fail or skip themselves
}

// A served is a ledger serve process at an address that the tests contain.
type served struct {
	address string
	secure  bool // with TLS and a user
}

// An ending is the expected result of a test that does not pass, and the reason.
type ending struct{ ending, reason string }

// ends selects a test of the first client that panics when the server refuses a
// request, and so would end the later tests. It runs in a process of its own.
const ends = "^TestStreams$/^AppendTests$/^metadataOperation$"

// suites are the test suites of both Go clients, without the tests of server
// projections, users with certificates or OAuth, and a database with existing data.
var suites = []suite{
	{
		name:    "eventstore",
		module:  "github.com/EventStore/EventStore-Client-Go/v4",
		folder:  "esdb",
		tests:   "^(TestStreams|TestPersistentSubscriptions|TestMisc)$",
		without: ends,
		env:     []string{"CLUSTER=true", "EVENTSTORE_INSECURE=false", "EVENTSTORE_DOCKER_TAG=24.10.4-jammy"},
		servers: []served{{"127.0.0.1:2113", true}},

		notPassing: eventStoreNotPassing,
	},
	{
		name:    "alone",
		module:  "github.com/EventStore/EventStore-Client-Go/v4",
		folder:  "esdb",
		tests:   ends,
		env:     []string{"CLUSTER=true", "EVENTSTORE_INSECURE=false", "EVENTSTORE_DOCKER_TAG=24.10.4-jammy"},
		servers: []served{{"127.0.0.1:2113", true}},

		notPassing: map[string]ending{"TestStreams/AppendTests/metadataOperation": {"fail", panicking}},
	},
	{
		name:      "kurrent",
		module:    "github.com/kurrent-io/KurrentDB-Client-Go",
		version:   "v1.3.0",
		sum:       "h1:vDypDApv6+9TKEhRdLXx+aik0h7h6oMjjquvD6glQnQ=",
		folder:    "test",
		tests:     "^(TestStreams|TestPersistentSubscriptions|TestMisc|TestAppendRecordsSuite|TestTypes|TestTLS|TestVersionParsingWithPrerelease)$",
		env:       []string{"KURRENTDB_DOCKER_TAG=24.10.5-jammy"},
		servers:   []served{{"127.0.0.1:2111", true}, {"127.0.0.1:2112", true}, {"127.0.0.1:2113", true}, {"127.0.0.1:2114", false}, {"127.0.0.1:2115", true}},
		authority: "certs/ca/ca.crt",

		notPassing: kurrentNotPassing,
	},
}

// The reasons why tests of the Go client do not pass.
const (
	forgets   = "it deletes or tombstones a stream: a ledger forgets nothing"
	ages      = "it lets a stream forget by $maxAge: that is refused"
	rights    = "it sets $maxAge and $acl: they are refused"
	panicking = "it sets $maxAge and $acl, which are refused, and panics then: it is run by itself"
	shutdown  = "it shuts a node of three down by HTTP: there is one, and it has no HTTP interface"
	v25       = "it skips itself: it wants a server from 25.0 on, with appends to several streams"
	v26       = "it skips itself: it wants a server from 26.1 on, with checks of several streams"
	follower  = "it looks for a follower among three nodes: there is one, the leader"
	populated = "it skips itself: it reads a database that was filled before"
	container = "it skips itself: it wants a container"
)

var eventStoreNotPassing = map[string]ending{
	"TestStreams/ClusterTests/notLeaderExceptionButWorkAfterRetry":                                    {"fail", follower},
	"TestStreams/DeleteTests/canDeleteStream":                                                         {"fail", forgets},
	"TestStreams/DeleteTests/canTombstoneStream":                                                      {"fail", forgets},
	"TestStreams/DeleteTests/detectStreamDeleted":                                                     {"fail", forgets},
	"TestStreams/ReadStreamTests/readStreamWithMaxAge":                                                {"fail", ages},
	"TestStreams/AppendTests/appendToSystemStreamWithIncorrectCredentials":                            {"skip", container},
	"TestStreams/ReadStreamTests/readStreamEventsForwardsFromZeroPosition":                            {"skip", populated},
	"TestStreams/ReadStreamTests/readStreamEventsBackwardsFromEndPosition":                            {"skip", populated},
	"TestStreams/SubscriptionTests/streamSubscriptionDeliversAllEventsInStreamAndListensForNewEvents": {"skip", populated},
	"TestStreams/SubscriptionTests/allSubscriptionWithFilterDeliversCorrectEvents":                    {"skip", populated},
	"TestStreams/SubscriptionTests/connectionClosing":                                                 {"skip", populated},
	"TestStreams/SubscriptionTests/subscriptionAllWithCredentialsOverride":                            {"skip", populated},
	"TestStreams/SubscriptionTests/subscriptionToStreamCaughtUpMessage":                               {"skip", populated},
	"TestPersistentSubscriptions/PersistentSubTests/testPersistentSubscriptionClosing":                {"skip", populated},
}

var kurrentNotPassing = map[string]ending{
	"TestAppendRecordsSuite/TestAppendRecordsEmptyRecordsReturnsError":                           {"skip", v26},
	"TestAppendRecordsSuite/TestAppendRecordsInvalidMetadataReturnsError":                        {"skip", v26},
	"TestAppendRecordsSuite/TestAppendRecordsMultipleStreams":                                    {"skip", v26},
	"TestAppendRecordsSuite/TestAppendRecordsSingleStream":                                       {"skip", v26},
	"TestAppendRecordsSuite/TestCheckExists_FailsWhenStreamIsDeleted":                            {"skip", v26},
	"TestAppendRecordsSuite/TestCheckExists_FailsWhenStreamIsTombstoned":                         {"skip", v26},
	"TestAppendRecordsSuite/TestCheckExists_FailsWhenStreamNotFound":                             {"skip", v26},
	"TestAppendRecordsSuite/TestCheckExists_SucceedsWhenStreamHasRevision":                       {"skip", v26},
	"TestAppendRecordsSuite/TestCheckNoStream_FailsWhenStreamHasRevision":                        {"skip", v26},
	"TestAppendRecordsSuite/TestCheckNoStream_SucceedsWhenStreamIsDeleted":                       {"skip", v26},
	"TestAppendRecordsSuite/TestCheckNoStream_SucceedsWhenStreamIsTombstoned":                    {"skip", v26},
	"TestAppendRecordsSuite/TestCheckNoStream_SucceedsWhenStreamNotFound":                        {"skip", v26},
	"TestAppendRecordsSuite/TestCheckRevision_FailsWhenStreamHasWrongRevision":                   {"skip", v26},
	"TestAppendRecordsSuite/TestCheckRevision_FailsWhenStreamIsDeleted":                          {"skip", v26},
	"TestAppendRecordsSuite/TestCheckRevision_FailsWhenStreamIsTombstoned":                       {"skip", v26},
	"TestAppendRecordsSuite/TestCheckRevision_FailsWhenStreamNotFound":                           {"skip", v26},
	"TestAppendRecordsSuite/TestCheckRevision_SucceedsWhenStreamHasRevision":                     {"skip", v26},
	"TestAppendRecordsSuite/TestInterleavedTracksRevisions":                                      {"skip", v26},
	"TestAppendRecordsSuite/TestMultipleChecks_FailsWhenAllChecksFail":                           {"skip", v26},
	"TestAppendRecordsSuite/TestMultipleChecks_FailsWhenCheckOnWriteTargetAndSeparateCheckFails": {"skip", v26},
	"TestAppendRecordsSuite/TestMultipleChecks_FailsWhenFirstCheckFailsAndSecondPasses":          {"skip", v26},
	"TestAppendRecordsSuite/TestMultipleChecks_FailsWhenOneOfMultipleChecksFails":                {"skip", v26},
	"TestAppendRecordsSuite/TestMultipleChecks_FailsWhenTwoOfThreeChecksFail":                    {"skip", v26},
	"TestAppendRecordsSuite/TestMultipleChecks_FailsWithMixedViolationStates":                    {"skip", v26},
	"TestAppendRecordsSuite/TestMultipleChecks_SucceedsWhenAllChecksPass":                        {"skip", v26},
	"TestAppendRecordsSuite/TestMultipleChecks_SucceedsWhenAllMixedCheckTypesPass":               {"skip", v26},
	"TestAppendRecordsSuite/TestWriteAny_FailsWhenStreamIsTombstoned":                            {"skip", v26},
	"TestAppendRecordsSuite/TestWriteAny_SucceedsWhenStreamHasRevision":                          {"skip", v26},
	"TestAppendRecordsSuite/TestWriteAny_SucceedsWhenStreamIsDeleted":                            {"skip", v26},
	"TestAppendRecordsSuite/TestWriteAny_SucceedsWhenStreamNotFound":                             {"skip", v26},
	"TestAppendRecordsSuite/TestWriteExists_FailsWhenStreamIsDeleted":                            {"skip", v26},
	"TestAppendRecordsSuite/TestWriteExists_FailsWhenStreamIsTombstoned":                         {"skip", v26},
	"TestAppendRecordsSuite/TestWriteExists_FailsWhenStreamNotFound":                             {"skip", v26},
	"TestAppendRecordsSuite/TestWriteExists_SucceedsWhenStreamHasRevision":                       {"skip", v26},
	"TestAppendRecordsSuite/TestWriteNoStream_FailsWhenStreamHasRevision":                        {"skip", v26},
	"TestAppendRecordsSuite/TestWriteNoStream_FailsWhenStreamIsTombstoned":                       {"skip", v26},
	"TestAppendRecordsSuite/TestWriteNoStream_SucceedsWhenStreamIsDeleted":                       {"skip", v26},
	"TestAppendRecordsSuite/TestWriteNoStream_SucceedsWhenStreamNotFound":                        {"skip", v26},
	"TestAppendRecordsSuite/TestWriteRevision_FailsWhenStreamHasWrongRevision":                   {"skip", v26},
	"TestAppendRecordsSuite/TestWriteRevision_FailsWhenStreamIsDeleted":                          {"skip", v26},
	"TestAppendRecordsSuite/TestWriteRevision_FailsWhenStreamIsTombstoned":                       {"skip", v26},
	"TestAppendRecordsSuite/TestWriteRevision_FailsWhenStreamNotFound":                           {"skip", v26},
	"TestAppendRecordsSuite/TestWriteRevision_SucceedsWhenStreamHasRevision":                     {"skip", v26},
	"TestStreams/AppendEvents/TestMetadataOperation":                                             {"fail", rights},
	"TestStreams/Delete/TestCanDeleteStream":                                                     {"fail", forgets},
	"TestStreams/Delete/TestCanTombstoneStream":                                                  {"fail", forgets},
	"TestStreams/Delete/TestDetectStreamDeleted":                                                 {"fail", forgets},
	"TestStreams/MultiAppend/TestMultiStreamAppend":                                              {"skip", v25},
	"TestStreams/MultiAppend/TestMultiStreamAppendNonPlainJsonMetadataThrows":                    {"skip", v25},
	"TestStreams/MultiAppend/TestMultiStreamAppendStreamRevisionConflict":                        {"skip", v25},
	"TestStreams/MultiAppend/TestMultiStreamAppendStreamTombstoned":                              {"skip", v25},
	"TestStreams/MultiAppend/TestMultiStreamAppendWithBinaryMetadataThrowsError":                 {"skip", v25},
	"TestStreams/ReadStream/TestReadStreamWithMaxAge":                                            {"fail", ages},
	"TestStreams/Rebalance/TestNotLeaderExceptionButWorkAfterRetry":                              {"fail", follower},
	"TestStreams/Rebalance/TestReadStreamAfterClusterRebalanced":                                 {"fail", shutdown},
}

// TestTheGoClientsOwnTests runs the test suites of both official Go clients against
// ledger serve. Every test passes except those in notPassing, and docs/eventstoredb.md
// has their number. The clients' tests contain the addresses, so this test runs only
// on request.
func TestTheGoClientsOwnTests(t *testing.T) {
	if os.Getenv(required) == "" {
		t.Skipf("%s is not set: the tests of the Go clients, which take ports 2111 to 2115 for themselves, are not run", required)
	}
	program := build(t)
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			g := guard(t)
			for _, at := range s.servers {
				serveGoClient(t, program, at, g)
			}
			s.check(t, s.run(t, g))
		})
	}
}

// check fails t for each test with an unexpected result, and unless the document has
// the numbers.
func (s suite) check(t *testing.T, endings map[string]result) {
	t.Helper()
	counts := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(endings)) {
		got, want := endings[name].ending, "pass"
		if known, ok := s.notPassing[name]; ok {
			want = known.ending
		}
		if counts[got]++; got != want {
			t.Errorf("%s: %s, want %s\n%s", name, got, want, endings[name].output)
		}
	}
	for name := range s.notPassing {
		if _, ok := endings[name]; !ok {
			t.Errorf("%s was not run", name)
		}
	}
	said := fmt.Sprintf("%d pass, %d fail, %d are skipped", counts["pass"], counts["fail"], counts["skip"])
	t.Log(said)
	if !strings.Contains(document(t), said) {
		t.Errorf("docs/eventstoredb.md does not say that %s", said)
	}
}

// build builds the ledger.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ledger")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/settlement-ledger/ledger/cmd/ledger").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// serveGoClient serves a folder at an address until the test ends.
func serveGoClient(t *testing.T, program string, at served, g guarded) {
	t.Helper()
	dir := t.TempDir()
	args := []string{"serve", "--store", filepath.Join(dir, "store"), "--listen", at.address, "--writable", "", "--writable", "$"}
	if at.secure {
		args = append(args, "--tls-cert", g.cert, "--tls-key", g.key, "--users", g.users)
	} else {
		args = append(args, "--anonymous", "ledger")
	}
	var said bytes.Buffer
	ledger := exec.Command(program, args...)
	ledger.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_STATE_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	ledger.Stdout, ledger.Stderr = &said, &said
	if err := ledger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ledger.Process.Signal(os.Interrupt) // Wait returns the result
		if err := ledger.Wait(); err != nil || t.Failed() {
			t.Errorf("ledger serve: %v\n%s", err, &said)
		}
	})
	addUsers(t, at, g)
}

// addUsers writes the user streams of a database, for which the tests of the Go client
// wait.
func addUsers(t *testing.T, at served, g guarded) {
	t.Helper()
	settings := "&tls=false"
	if at.secure {
		settings = "&tlsCaFile=" + g.authority
	}
	cfg, err := esdb.ParseConnectionString("esdb://" + user + ":" + password + "@" + at.address + "?maxDiscoverAttempts=200" + settings)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = esdb.NoopLogging()
	client, err := esdb.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	made := esdb.EventData{EventType: "$User", ContentType: esdb.ContentTypeJson, Data: []byte("{}")}
	if _, err := client.AppendToStream(t.Context(), "$users", esdb.AppendToStreamOptions{}, made); err != nil {
		t.Fatal(err)
	}
}

// source downloads the module of the client and returns its folder.
func (s suite) source(t *testing.T) string {
	t.Helper()
	if s.version == "" {
		where, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", s.module).Output()
		if err != nil {
			t.Fatalf("go list -m %s: %v", s.module, err)
		}
		return strings.TrimSpace(string(where))
	}
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", s.module+"@"+s.version)
	download.Dir = t.TempDir() // of no module
	out, err := download.Output()
	var got struct{ Dir, Sum string }
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("go mod download %s@%s: %v\n%s", s.module, s.version, err, out)
	}
	if got.Sum != s.sum {
		t.Fatalf("%s %s has the sum %s, want %s", s.module, s.version, got.Sum, s.sum)
	}
	return got.Dir
}

// run runs the tests of the client.
func (s suite) run(t *testing.T, g guarded) map[string]result {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(s.source(t))); err != nil {
		t.Fatal(err)
	}
	if s.authority != "" {
		text, err := os.ReadFile(g.authority)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, s.authority), text)
	}
	run := exec.CommandContext(t.Context(), "go", "test", "-json", "-count=1", "-timeout=5m", "-run", s.tests, "-skip", cmp.Or(s.without, "^$"), ".")
	run.Dir = filepath.Join(dir, s.folder)
	run.Env = append(os.Environ(), s.env...)
	out, err := run.Output() // an error if a test fails; out has the results
	ended := read(out)
	if len(ended) == 0 {
		t.Fatalf("go test %s: %v\n%s", s.module, err, out)
	}
	return ended
}

// A result is the ending and the output of a test.
type result struct{ ending, output string }

// read decodes the output of go test -json and returns the results of the tests
// without subtests.
func read(out []byte) map[string]result {
	all := map[string]result{}
	for line := range bytes.Lines(out) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil || e.Test == "" {
			continue
		}
		r := all[e.Test]
		r.output += e.Output
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			r.ending = e.Action
		}
		all[e.Test] = r
	}
	for name := range all {
		for i, c := range name {
			if c == '/' {
				delete(all, name[:i])
			}
		}
	}
	return all
}

func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "eventstoredb.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each test in notPassing is in the tables of docs/eventstoredb.md, and no other.
func TestTheDocumentNamesWhatDoesNotPass(t *testing.T) {
	t.Parallel()
	known := map[string]ending{}
	for _, s := range suites {
		for name, e := range s.notPassing {
			known[s.name+" "+name] = e
		}
	}
	got := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| ([a-z]+) `(Test[^`]+)` \\| (fail|skip) \\| (.+) \\|$").FindAllStringSubmatch(document(t), -1) {
		name := row[1] + " " + row[2]
		if e, ok := known[name]; !ok || e.ending != row[3] || e.reason != row[4] {
			t.Errorf("docs/eventstoredb.md says of %s: %s, %s; it is %+v", name, row[3], row[4], e)
		}
		got[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if of, test, _ := strings.Cut(name, " "); !got[name] {
			t.Errorf("docs/eventstoredb.md lacks the row\n| %s `%s` | %s | %s |", of, test, known[name].ending, known[name].reason)
		}
	}
}
