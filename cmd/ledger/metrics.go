package main

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

// A gauge exposes a host as a prometheus.Collector. It is safe for concurrent use.
type gauge struct{ *host }

// Describe sends the descriptors of all metrics.
func (g gauge) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		positionMetric, appendsMetric, recordsMetric, failedMetric, waitingMetric, bytesMetric, syncMetric, subscribersMetric, lagMetric,
		requestsMetric, refusedMetric, stoppedMetric, failuresMetric, slowMetric, stallsMetric, stalledMetric, connectedMetric, turnedAwayMetric,
	} {
		to <- d
	}
}

// Collect sends the current values. A node of a database has no store of its own,
// and sends only the metrics of its HTTP requests and connections.
func (g gauge) Collect(to chan<- prometheus.Metric) {
	told := func(d *prometheus.Desc, kind prometheus.ValueType, value float64) {
		to <- prometheus.MustNewConstMetric(d, kind, value)
	}
	told(requestsMetric, prometheus.CounterValue, float64(g.asked.Load()))
	told(refusedMetric, prometheus.CounterValue, float64(g.refused.Load()))
	connected := g.cfg.Connections.Stats()
	to <- prometheus.MustNewConstMetric(connectedMetric, prometheus.GaugeValue, float64(connected.Open-connected.Unauthenticated), "authenticated")
	to <- prometheus.MustNewConstMetric(connectedMetric, prometheus.GaugeValue, float64(connected.Unauthenticated), "unauthenticated")
	told(turnedAwayMetric, prometheus.CounterValue, float64(connected.Refused))
	if g.meter == nil {
		return
	}
	seen, vitals := g.meter.read(), g.meter.Stats()
	stopped := 0.0
	if vitals.Failure != nil {
		stopped = 1
	}
	told(positionMetric, prometheus.GaugeValue, float64(stores.Sequence(seen.Head)))
	told(appendsMetric, prometheus.CounterValue, float64(seen.Appends))
	told(recordsMetric, prometheus.CounterValue, float64(seen.Records))
	told(failedMetric, prometheus.CounterValue, float64(seen.Failed))
	told(waitingMetric, prometheus.GaugeValue, float64(vitals.Waiting))
	told(bytesMetric, prometheus.CounterValue, float64(vitals.Bytes))
	told(subscribersMetric, prometheus.GaugeValue, float64(seen.Subscribers))
	told(lagMetric, prometheus.GaugeValue, float64(seen.Lag))
	told(stoppedMetric, prometheus.GaugeValue, stopped)
	collectSyncs(vitals.Syncs, to)
	told(slowMetric, prometheus.CounterValue, float64(vitals.Health.Slow))
	collectHealth("log", vitals.Health, to)
	if g.kept != nil {
		collectHealth(stores.OutputsName, g.kept.Health(), to)
	}
}

// collectHealth sends the counters of the background work of a Pebble database:
// failed flushes and compactions, and write stalls. database is the value of the
// label.
func collectHealth(database string, h embedded.Health, to chan<- prometheus.Metric) {
	stalled := 0.0
	if h.Stalled {
		stalled = 1
	}
	to <- prometheus.MustNewConstMetric(failuresMetric, prometheus.CounterValue, float64(h.Failures), database)
	to <- prometheus.MustNewConstMetric(stallsMetric, prometheus.CounterValue, float64(h.Stalls), database)
	to <- prometheus.MustNewConstMetric(stalledMetric, prometheus.GaugeValue, stalled, database)
}

// ranks are the quantiles of the recent sync durations that are exported, by the
// value of their label.
var ranks = map[string]float64{"median": 0.5, "p99": 0.99, "worst": 1}

// collectSyncs sends the quantiles of the sync durations, and no metric before the
// first sync. It sorts took.
func collectSyncs(took []time.Duration, to chan<- prometheus.Metric) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	for name, q := range ranks {
		at := min(int(q*float64(len(took))), len(took)-1)
		to <- prometheus.MustNewConstMetric(syncMetric, prometheus.GaugeValue, took[at].Seconds(), name)
	}
}

// metrics returns the handler of /metrics. It serves the metrics of the host, the
// process and the Go runtime in the Prometheus and the OpenMetrics format, to at
// most four requests at a time.
func (s *host) metrics() http.Handler {
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(gauge{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4})
}

// failure returns the error for which the store refuses appends, or nil while it
// accepts them. A node has no store and returns nil.
func (s *host) failure() error {
	if s.meter == nil {
		return nil
	}
	return s.meter.Stats().Failure
}

// health serves the health check: 200 while the store accepts appends, 503 while it
// does not. It requires no credentials, as the response reveals no content of the
// store.
func (s *host) health(w http.ResponseWriter, _ *http.Request) {
	if failure := s.failure(); failure != nil {
		why := "until it is opened again"
		if errors.Is(failure, embedded.ErrPaused) {
			why = "while the disk is full or too many files are open"
		}
		http.Error(w, "the store takes no appends "+why, http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // an error means that the client disconnected
}
