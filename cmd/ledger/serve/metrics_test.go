package serve

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/conns"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A measured is a serverProcess that serves a store in memory, with an HTTP server for
// its metrics and its health.
type measured struct {
	*serverProcess
	at    string      // base URL of the HTTP server
	fails atomic.Bool // makes each write to the disk fail
	mint  *domain.Mint
}

// newMeasured starts a serverProcess with a configuration. With node it has no
// meteredStore, like a node of a ledger in a database.
func newMeasured(t *testing.T, cfg server.Config, node bool) *measured {
	t.Helper()
	m := &measured{mint: domain.NewMint(time.Now, rand.Reader)}
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if m.fails.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errors.New("the disk is gone")
		}
		return nil
	}))
	store, err := embedded.Open(t.Context(), "store", embedded.Config{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := outputs.Open(t.TempDir(), outputs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Connections = conns.New(conns.Config{})
	m.serverProcess = &serverProcess{Config: testConfig(), access: cfg, log: slog.New(slog.DiscardHandler), outputs: kept, store: &stores.Store{}}
	if !node {
		m.serverProcess.metered = newMeteredStore(store)
	}
	server := httptest.NewServer(m.handler())
	m.at = server.URL
	t.Cleanup(func() {
		server.Close()
		_ = errors.Join(kept.Close(), store.Close()) // a store that stopped returns its write error again
	})
	return m
}

// testConfig returns a configuration with a clock and a source of randomness.
func testConfig() Config {
	return Config{Printer: &render.Printer{Now: time.Now}, Opener: &stores.Opener{Clock: time.Now, Entropy: rand.Reader}}
}

// get makes a GET request and returns the status code and the body of the response.
func (m *measured) get(t *testing.T, path string) (int, string) {
	t.Helper()
	response, err := http.Get(m.at + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// append appends one record to the stream s-1, through the meteredStore.
func (m *measured) append(t *testing.T, after events.Revision) error {
	t.Helper()
	r := events.Record{ID: m.mint.Event(), Kind: "K", Version: 1, Time: time.Now().UTC().Truncate(time.Microsecond), Data: []byte("{}")}
	return m.metered.Append(t.Context(), "s-1", after, r)
}

// The metrics page passes the Prometheus linter and reports positions, appends,
// subscribers, syncs, connections and the process.
func TestMetricsTellHowAStoreIsServed(t *testing.T) {
	t.Parallel()
	m := newMeasured(t, server.Config{Anonymous: auth.Reader}, false)
	for n := range events.Revision(3) {
		if err := m.append(t, n); err != nil {
			t.Fatal(err)
		}
	}
	if problems, err := testutil.CollectAndLint(metricsCollector{m.serverProcess}); err != nil || len(problems) > 0 {
		t.Errorf("the metrics are not as Prometheus wants them: %v, %v", problems, err)
	}
	code, text := m.get(t, metricsPath)
	for _, want := range []string{
		"ledger_position 3\n", "ledger_appends_total 3\n", "ledger_records_total 3\n", "ledger_append_failures_total 0\n", "ledger_appends_waiting 0\n",
		"ledger_subscribers 0\n", "ledger_subscriber_lag_records 0\n", "ledger_store_stopped 0\n", "ledger_slow_writes_total 0\n", "ledger_background_failures_total{database=\"log\"} 0\n", "ledger_write_stalls_total{database=\"log\"} 0\n", "ledger_write_stalled{database=\"log\"} 0\n", "ledger_http_requests_total 1\n", "ledger_http_refused_total 0\n", "ledger_connections{state=\"authenticated\"} 0\n", "ledger_connections_refused_total 0\n",
		`ledger_sync_seconds{rank="p99"} `, "ledger_record_bytes_total ", "go_goroutines ", "process_open_fds ",
	} {
		if !strings.Contains("\n"+text, "\n"+want) {
			t.Errorf("GET %s = %d without %q:\n%s", metricsPath, code, want, text)
		}
	}
}

// After a failed write the health page responds with 503 and the metrics report a
// stopped store.
func TestAStoreThatStoppedIsNotHealthy(t *testing.T) {
	t.Parallel()
	m := newMeasured(t, server.Config{Anonymous: auth.Reader}, false)
	if code, text := m.get(t, HealthPath); code != http.StatusOK || text != "ok\n" {
		t.Errorf("GET %s = %d %q, want ok", HealthPath, code, text)
	}
	m.fails.Store(true)
	if err := m.append(t, 0); err == nil {
		t.Fatal("an append to a disk that fails succeeded")
	}
	if code, text := m.get(t, HealthPath); code != http.StatusServiceUnavailable || !strings.Contains(text, "opened again") {
		t.Errorf("after a failed write GET %s = %d %q, want 503", HealthPath, code, text)
	}
	if _, text := m.get(t, metricsPath); !strings.Contains(text, "\nledger_store_stopped 1\n") || !strings.Contains(text, "\nledger_append_failures_total 1\n") {
		t.Errorf("the metrics do not tell that the store stopped:\n%s", text)
	}
}

// oneReader returns the user ada with the password wonder and the role of a reader.
func oneReader(t *testing.T) *auth.Users {
	t.Helper()
	line, err := auth.FormatUser("ada", "wonder", auth.Reader)
	if err != nil {
		t.Fatal(err)
	}
	users, err := auth.ParseUsers(strings.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	return users
}

// The health page requires no user. The metrics page requires one, and a refused
// request is counted. A node reports no metrics of a log.
func TestHealthIsForEverybodyAndMetricsAreNot(t *testing.T) {
	t.Parallel()
	users := oneReader(t)
	m := newMeasured(t, server.Config{Users: users}, true)
	if code, _ := m.get(t, HealthPath); code != http.StatusOK {
		t.Errorf("GET %s = %d, want 200", HealthPath, code)
	}
	if code, text := m.get(t, metricsPath); code != http.StatusUnauthorized || strings.Contains(text, "ledger_") {
		t.Errorf("GET %s = %d %q, want 401", metricsPath, code, text)
	}
	m.at = strings.Replace(m.at, "://", "://ada:wonder@", 1)
	code, text := m.get(t, metricsPath)
	if code != http.StatusOK || !strings.Contains(text, "\nledger_http_refused_total 1\n") || strings.Contains(text, "ledger_position") {
		t.Errorf("GET %s of a node as a reader = %d, want its requests and nothing of a log:\n%s", metricsPath, code, text)
	}
}

// A request with valid credentials that its role does not permit gets 403, without a
// challenge to authenticate. So does a request to a server without users whose Host
// header is no address of this machine.
func TestForbiddenRequestsAreNotAskedToAuthenticate(t *testing.T) {
	t.Parallel()
	users := oneReader(t)
	want := func(r *http.Request, status int, challenged bool) {
		t.Helper()
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != status || (response.Header.Get("WWW-Authenticate") != "") != challenged {
			t.Errorf("%s %s = %d, challenge %q; want %d", r.Method, r.URL.Path, response.StatusCode, response.Header.Get("WWW-Authenticate"), status)
		}
	}
	request := func(m *measured, method string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, m.at+stores.StatusPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	m := newMeasured(t, server.Config{Users: users}, true)
	want(request(m, http.MethodPost), http.StatusUnauthorized, true)
	write := request(m, http.MethodPost)
	write.SetBasicAuth("ada", "wonder")
	want(write, http.StatusForbidden, false)
	open := newMeasured(t, server.Config{Anonymous: auth.Reader}, true)
	rebound := request(open, http.MethodGet)
	rebound.Host = "example.org"
	want(rebound, http.StatusForbidden, false)
}
