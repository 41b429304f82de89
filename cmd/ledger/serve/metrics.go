package serve

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// The metrics of a store or a node that is served, as docs/serving.md lists them.
var (
	positionMetric    = prometheus.NewDesc("ledger_position", "Position of the last record.", nil, nil)
	appendsMetric     = prometheus.NewDesc("ledger_appends_total", "Appends that added records, through this process.", nil, nil)
	recordsMetric     = prometheus.NewDesc("ledger_records_total", "Records that they added.", nil, nil)
	failedMetric      = prometheus.NewDesc("ledger_append_failures_total", "Appends that failed and were no conflict.", nil, nil)
	waitingMetric     = prometheus.NewDesc("ledger_appends_waiting", "Appends that wait to be written.", nil, nil)
	bytesMetric       = prometheus.NewDesc("ledger_record_bytes_total", "Bytes of the records that were added, before compression.", nil, nil)
	syncMetric        = prometheus.NewDesc("ledger_sync_seconds", "How long the last syncs of the disk took, at most 512.", []string{"rank"}, nil)
	subscribersMetric = prometheus.NewDesc("ledger_subscribers", "Subscribers that are kept current.", nil, nil)
	lagMetric         = prometheus.NewDesc("ledger_subscriber_lag_records", "Records before the subscriber that is furthest behind.", nil, nil)
	requestsMetric    = prometheus.NewDesc("ledger_http_requests_total", "Requests for what is served beside the log.", nil, nil)
	refusedMetric     = prometheus.NewDesc("ledger_http_refused_total", "Requests of these that were refused for want of a user or a right.", nil, nil)
	connectedMetric   = prometheus.NewDesc("ledger_connections", "Open connections.", []string{"state"}, nil)
	turnedAwayMetric  = prometheus.NewDesc("ledger_connections_refused_total", "Connections closed for their number, or because they did not authenticate in time.", nil, nil)
	failuresMetric    = prometheus.NewDesc("ledger_background_failures_total", "Flushes and compactions of a database that failed and are tried again.", []string{"database"}, nil)
	slowMetric        = prometheus.NewDesc("ledger_slow_writes_total", "Writes and syncs of the log that took longer than 2 seconds.", nil, nil)
	stallsMetric      = prometheus.NewDesc("ledger_write_stalls_total", "Times that writes to a database waited for its flushes or compactions.", []string{"database"}, nil)
	stalledMetric     = prometheus.NewDesc("ledger_write_stalled", "1 while writes to a database wait so.", []string{"database"}, nil)
	stoppedMetric     = prometheus.NewDesc("ledger_store_stopped", "1 while the store takes no writes, as one failed.", nil, nil)
)

// A metricsCollector exposes a serverProcess as a prometheus.Collector. It is safe for
// concurrent use.
type metricsCollector struct{ *serverProcess }

// Describe sends the descriptors of all metrics.
func (g metricsCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		positionMetric, appendsMetric, recordsMetric, failedMetric, waitingMetric, bytesMetric, syncMetric, subscribersMetric, lagMetric,
		requestsMetric, refusedMetric, stoppedMetric, failuresMetric, slowMetric, stallsMetric, stalledMetric, connectedMetric, turnedAwayMetric,
	} {
		to <- d
	}
}

// Collect sends the current values. A node of a database has no store of its own,
// and sends only the metrics of its HTTP requests and connections.
func (g metricsCollector) Collect(to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64) {
		to <- prometheus.MustNewConstMetric(d, kind, value)
	}
	send(requestsMetric, prometheus.CounterValue, float64(g.requests.Load()))
	send(refusedMetric, prometheus.CounterValue, float64(g.refusedRequests.Load()))
	connected := g.access.Connections.Stats()
	to <- prometheus.MustNewConstMetric(connectedMetric, prometheus.GaugeValue, float64(connected.Open-connected.Unauthenticated), "authenticated")
	to <- prometheus.MustNewConstMetric(connectedMetric, prometheus.GaugeValue, float64(connected.Unauthenticated), "unauthenticated")
	send(turnedAwayMetric, prometheus.CounterValue, float64(connected.Refused))
	if g.metered == nil {
		return
	}
	seen, stats := g.metered.counters(), g.metered.Stats()
	stopped := 0.0
	if stats.Failure != nil {
		stopped = 1
	}
	send(positionMetric, prometheus.GaugeValue, float64(stores.Sequence(seen.Head)))
	send(appendsMetric, prometheus.CounterValue, float64(seen.Appends))
	send(recordsMetric, prometheus.CounterValue, float64(seen.Records))
	send(failedMetric, prometheus.CounterValue, float64(seen.Failed))
	send(waitingMetric, prometheus.GaugeValue, float64(stats.Waiting))
	send(bytesMetric, prometheus.CounterValue, float64(stats.Bytes))
	send(subscribersMetric, prometheus.GaugeValue, float64(seen.Subscribers))
	send(lagMetric, prometheus.GaugeValue, float64(seen.Lag))
	send(stoppedMetric, prometheus.GaugeValue, stopped)
	collectSyncs(stats.Syncs, to)
	send(slowMetric, prometheus.CounterValue, float64(stats.Health.Slow))
	collectHealth("log", stats.Health, to)
	if g.outputs != nil {
		collectHealth(stores.OutputsName, g.outputs.Health(), to)
	}
}

// collectHealth sends the counters of the background work of a Pebble database: failed
// flushes and compactions, and write stalls. The metrics have database as the value of
// their label.
func collectHealth(database string, h embedded.Health, to chan<- prometheus.Metric) {
	stalled := 0.0
	if h.Stalled {
		stalled = 1
	}
	to <- prometheus.MustNewConstMetric(failuresMetric, prometheus.CounterValue, float64(h.Failures), database)
	to <- prometheus.MustNewConstMetric(stallsMetric, prometheus.CounterValue, float64(h.Stalls), database)
	to <- prometheus.MustNewConstMetric(stalledMetric, prometheus.GaugeValue, stalled, database)
}

// quantiles are the exported quantiles of the recent sync durations. Each key is the
// value of the metric's label.
var quantiles = map[string]float64{"median": 0.5, "p99": 0.99, "worst": 1}

// collectSyncs sends the quantiles of the sync durations in took. It sends nothing if
// took is empty. It sorts took in place.
func collectSyncs(took []time.Duration, to chan<- prometheus.Metric) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	for name, q := range quantiles {
		at := min(int(q*float64(len(took))), len(took)-1)
		to <- prometheus.MustNewConstMetric(syncMetric, prometheus.GaugeValue, took[at].Seconds(), name)
	}
}

// metricsHandler returns the handler of /metrics. It serves the metrics of the server,
// the process and the Go runtime in the Prometheus and the OpenMetrics format, to at
// most four requests at a time.
func (s *serverProcess) metricsHandler() http.Handler {
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(metricsCollector{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4})
}

// storeFailure returns the error for which the store refuses appends, or nil while it
// accepts them. A node has no store and returns nil.
func (s *serverProcess) storeFailure() error {
	if s.metered == nil {
		return nil
	}
	return s.metered.Stats().Failure
}

// serveHealth serves the health check: status 200 while the store accepts appends, and
// 503 otherwise. It requires no credentials, as the response reveals no content of the
// store.
func (s *serverProcess) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if failure := s.storeFailure(); failure != nil {
		why := "until it is opened again"
		if errors.Is(failure, embedded.ErrPaused) {
			why = "while the disk is full or too many files are open"
		}
		http.Error(w, "the store takes no appends "+why, http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // an error means that the client disconnected
}
