// Package metrics serves the operational state of a controller or an agent to Prometheus, according to its conventions.
// The metrics are computed for each scrape from existing state, so that nothing is counted per message. Measurements
// are in records and not here.
package metrics

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// askTimeout limits the requests of a scrape to the control plane. Prometheus's default timeout is 10 s.
const askTimeout = 5 * time.Second

// handler serves a collector together with the metrics of the process.
func handler(c prometheus.Collector, version string, log *slog.Logger) http.Handler {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "lockstep_build_info",
		Help:        "Which release this is; always 1.",
		ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	r.MustRegister(c, build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: 2, Timeout: 2 * askTimeout})
}

// sheet sends metrics. It builds a description per metric and scrape, because there are few of both.
type sheet chan<- prometheus.Metric

func (s sheet) gauge(name, help string, value float64, labels ...string) {
	s.add(prometheus.GaugeValue, name, help, value, labels)
}

func (s sheet) counter(name, help string, value float64, labels ...string) {
	s.add(prometheus.CounterValue, name, help, value, labels)
}

// add sends a metric. labels alternates names and values.
func (s sheet) add(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	s <- prometheus.MustNewConstMetric(prometheus.NewDesc("lockstep_"+name, help, names, nil), kind, value, values...)
}

// truth returns 1 or 0.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
