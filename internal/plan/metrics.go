package plan

import (
	"slices"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Metrics are the metrics of a run's brokers that only their drivers declare. Every run also has
// drivers.SharedMetrics. They are part of the record, which is read without the drivers.
type Metrics []drivers.MetricInfo

// All returns the shared metrics and m, in the order of the documentation.
func (m Metrics) All() []drivers.MetricInfo { return append(drivers.SharedMetrics(), m...) }

// Values returns the values of tables, in the order of the documentation: those of every run, and those of m.
func (m Metrics) Values() []ValueInfo { return append(slices.Clone(valueTable()), metricValues(m)...) }

// Names returns the names of Values.
func (m Metrics) Names() (names []string) {
	for _, v := range m.Values() {
		names = append(names, v.Name)
	}
	return names
}

// ValueNamed returns the description of a value by its name in tables, with its group ("bulk/publish.p99") or without.
// ok is false if there is no such value.
func (m Metrics) ValueNamed(name string) (v ValueInfo, ok bool) {
	group, plain := SplitGroup(name)
	if at, is := valueIndex()[plain]; is {
		v, ok = valueTable()[at], true
	} else if _, is := MetricOf(plain); is {
		own := metricValues(m)
		if at := slices.IndexFunc(own, func(v ValueInfo) bool { return v.Name == plain }); at >= 0 {
			v, ok = own[at], true
		}
	}
	if ok && group != "" {
		v.Name, v.Title = name, group+": "+v.Title
	}
	return v, ok
}

// Join returns m with further metrics, each once, without shared ones. If two have the same name, the first one counts.
func (m Metrics) Join(more ...drivers.MetricInfo) Metrics {
	all := slices.Clone(m)
	for _, f := range more {
		known := func(o drivers.MetricInfo) bool { return o.Name == f.Name }
		if !slices.ContainsFunc(all.All(), known) {
			all = append(all, f)
		}
	}
	return all
}

// SamplesTime reports whether a sample of a metric covers the time since the previous one, and not one moment.
func SamplesTime(f drivers.MetricInfo) bool {
	return Unit(f.Unit) == Cores || strings.HasSuffix(f.Unit, "/s")
}

// ProcessMetrics returns the names of the metrics that only hosts report, of the broker's processes. They need the
// processes in the matrix (process) or an agent that observes them (lockstep-agent --observe).
func ProcessMetrics() []string {
	return []string{drivers.MetricRSS, drivers.MetricDiskRead, drivers.MetricDiskWrite, drivers.MetricNetIn,
		drivers.MetricNetOut}
}

// MetricTitle returns the name of a metric in headings: "memory queues" for "memory.queues".
func MetricTitle(name string) string {
	if name == drivers.MetricCPU || name == drivers.MetricRSS {
		return strings.ToUpper(name)
	}
	return strings.NewReplacer(".", " ", "_", " ").Replace(name)
}

// MetricStatistics returns the statistics of metrics that tables can show, as in "broker.memory.p50".
func MetricStatistics() []string { return []string{"mean", "p50", "max"} }

const metricPrefix = "broker."

// MetricValue returns the name of the value for a statistic of a metric.
func MetricValue(metric, statistic string) string { return metricPrefix + metric + "." + statistic }

// MetricOf returns the metric of a value's name, without group. is is false if the value is not one of a metric.
func MetricOf(value string) (metric string, is bool) {
	name, is := strings.CutPrefix(value, metricPrefix)
	at := strings.LastIndexByte(name, '.')
	if !is || at < 1 || !slices.Contains(MetricStatistics(), name[at+1:]) {
		return "", false
	}
	return name[:at], true
}

// metricValues returns the values of metrics.
func metricValues(metrics []drivers.MetricInfo) []ValueInfo {
	statistics := map[string]string{"mean": "mean of the measurement", "p50": "median of its samples",
		"max": "maximum of its samples"}
	var values []ValueInfo
	for _, f := range metrics {
		better := neither
		if f.LowerIsBetter {
			better = lower
		}
		for _, s := range MetricStatistics() {
			doc := strings.TrimSuffix(f.Doc, ".") + "; " + statistics[s]
			values = append(values, ValueInfo{MetricValue(f.Name, s), "Broker " + MetricTitle(f.Name) + " " + s,
				Unit(f.Unit), better, 0, doc})
		}
	}
	return values
}
