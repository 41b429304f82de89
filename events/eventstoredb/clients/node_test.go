package clients_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// TestTheNodeClients runs the tests in the folder node with both official clients.
func TestTheNodeClients(t *testing.T) {
	t.Parallel()
	if os.Getenv(required) == "" {
		t.Skipf("%s is not set: the tests of the Node clients are not run; .ci/clients runs them", required)
	}
	dir := install(t)
	writable := []string{"shop-", "filtered-", "resumed-", "grouped-"}
	t.Run("in the clear", func(t *testing.T) {
		t.Parallel()
		store := open(t)
		at := serve(t, store, "127.0.0.1:0", server.Config{Anonymous: auth.Writer, Writable: writable})
		ask(t, dir, store, at.String()+"?tls=false")
	})
	t.Run("with TLS and a user", func(t *testing.T) {
		t.Parallel()
		store, g := open(t), guard(t)
		at := serve(t, store, "127.0.0.1:0", g.config(t, writable...))
		port := at.(*net.TCPAddr).Port
		ask(t, dir, store, fmt.Sprintf("%s:%s@localhost:%d?tlsCAFile=%s", user, password, port, g.authority))
	})
}

// install copies the folder node and installs the clients of the lock file there,
// without running scripts of packages.
func install(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			lacks(t, "%s is not installed: the official Node clients are not tested", program)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("node")); err != nil {
		t.Fatal(err)
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		lacks(t, "npm ci: %v: the official Node clients are not tested\n%s", err, out)
	}
	return dir
}

// ask serves a store and runs the Node tests against it. server is the rest of the
// connection string after the scheme.
func ask(t *testing.T, dir string, store events.Store, server string) {
	t.Helper()
	session := converse(t, store)
	for _, client := range []string{"eventstore", "kurrent"} {
		node := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", filepath.Join(dir, "clients.test.js"))
		node.Dir = dir
		node.Env = append(os.Environ(), "CLIENT="+client, "SERVER="+server, "SESSION="+string(session))
		if out, err := node.CombinedOutput(); err != nil {
			t.Errorf("the tests of %s: %v\n%s", client, err, out)
			continue
		}
		check(t, store, client)
	}
}

func mint() *domain.Mint { return domain.NewMint(time.Now, rand.NewChaCha8([32]byte{1})) }

// converse writes a session with two events, as the ledger does, and returns its
// stream.
func converse(t *testing.T, store events.Store) events.Stream {
	t.Helper()
	ledger := events.NewLedger(store, mint(), time.Now)
	session := ledger.Mint().Session()
	opened := ledger.Draft(events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}}, domain.EventID{})
	asked := ledger.Draft(events.PromptAdmitted{Message: ledger.Mint().Message(), Text: "mend the test"}, opened.ID)
	stream := events.SessionStream(session)
	if _, err := ledger.Append(t.Context(), stream, 0, opened, asked); err != nil {
		t.Fatal(err)
	}
	return stream
}

// check compares the first event that a client wrote with the store.
func check(t *testing.T, store events.Store, client string) {
	t.Helper()
	var got []string
	for e, err := range store.Read(t.Context(), events.Stream("shop-"+client+"-append"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %s", e.Kind, e.Data, e.Metadata))
	}
	metadata := fmt.Sprintf(`{"by":%q}`, client)
	want := []string{`said {"text":"first"} ` + metadata, `said {"text":"second"} ` + metadata, "drawn \x00\xff\x07 "}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%s wrote %q, want %q", client, got, want)
	}
}
