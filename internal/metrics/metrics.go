// Package metrics serves the state of a controller or an agent to Prometheus: a handful of metrics for somebody on
// call, by Prometheus' conventions. They are made for each scrape, of state that is there anyway: nothing is counted
// per message. What was measured is not here; it is in records.
package metrics

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// askTimeout bounds what a scrape may wait for; Prometheus gives up after 10 s, unless told otherwise.
const askTimeout = 5 * time.Second

// handler serves a collector with the metrics of the process.
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

// sheet collects metrics. A description is rebuilt each time: there are few, and a scrape comes every few seconds at
// most.
type sheet chan<- prometheus.Metric

func (s sheet) gauge(name, help string, value float64, labels ...string) {
	s.add(prometheus.GaugeValue, name, help, value, labels)
}

func (s sheet) counter(name, help string, value float64, labels ...string) {
	s.add(prometheus.CounterValue, name, help, value, labels)
}

// add takes labels as names and values in turn.
func (s sheet) add(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	s <- prometheus.MustNewConstMetric(prometheus.NewDesc("lockstep_"+name, help, names, nil), kind, value, values...)
}

// truth is 1 or 0.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
