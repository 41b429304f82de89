package main

import (
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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
	stoppedMetric     = prometheus.NewDesc("ledger_store_stopped", "1 if a write failed and the store takes none until it is opened again.", nil, nil)
)

// A gauge is a host as Prometheus reads it. It is safe for concurrent use.
type gauge struct{ *host }

// Describe tells which metrics there can be.
func (g gauge) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		positionMetric, appendsMetric, recordsMetric, failedMetric, waitingMetric, bytesMetric, syncMetric, subscribersMetric, lagMetric,
		requestsMetric, refusedMetric, stoppedMetric,
	} {
		to <- d
	}
}

// Collect tells what they are now. Those of the log are not there for a node.
func (g gauge) Collect(to chan<- prometheus.Metric) {
	told := func(d *prometheus.Desc, kind prometheus.ValueType, value float64) {
		to <- prometheus.MustNewConstMetric(d, kind, value)
	}
	told(requestsMetric, prometheus.CounterValue, float64(g.asked.Load()))
	told(refusedMetric, prometheus.CounterValue, float64(g.refused.Load()))
	if g.meter == nil {
		return
	}
	seen, vitals := g.meter.read(), g.meter.Vitals()
	stopped := 0.0
	if vitals.Failure != nil {
		stopped = 1
	}
	told(positionMetric, prometheus.GaugeValue, float64(sequence(seen.Head)))
	told(appendsMetric, prometheus.CounterValue, float64(seen.Appends))
	told(recordsMetric, prometheus.CounterValue, float64(seen.Records))
	told(failedMetric, prometheus.CounterValue, float64(seen.Failed))
	told(waitingMetric, prometheus.GaugeValue, float64(vitals.Waiting))
	told(bytesMetric, prometheus.CounterValue, float64(vitals.Bytes))
	told(subscribersMetric, prometheus.GaugeValue, float64(seen.Subscribers))
	told(lagMetric, prometheus.GaugeValue, float64(seen.Lag))
	told(stoppedMetric, prometheus.GaugeValue, stopped)
	collectSyncs(vitals.Syncs, to)
}

// ranks are those of the last syncs, in the order of how long they took, whose
// time is told.
var ranks = map[string]float64{"median": 0.5, "p99": 0.99, "worst": 1}

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

// metrics answers who asks for the metrics of a host, in the format of
// Prometheus and in OpenMetrics, with those of the process and of Go.
func (s *host) metrics() http.Handler {
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(gauge{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4})
}

// health answers whether the store takes appends, to everybody: it says nothing
// of what is in it. A store that a write failed in is well again when it was
// opened again.
func (s *host) health(w http.ResponseWriter, _ *http.Request) {
	if s.meter != nil && s.meter.Vitals().Failure != nil {
		http.Error(w, "the store takes no appends until it is opened again", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // whoever asked is gone
}
