package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/stats"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// EventNotObserved is the kind of a controller event: an agent that should measure a broker's processes no longer does.
// Its detail comes from NotObserved.
const EventNotObserved = "not-observed"

// NotObserved returns the detail of such an event.
func NotObserved(broker, agent, why string) string {
	return fmt.Sprintf("not observed: broker %s by agent %s: %s", broker, agent, why)
}

// minAnswered is the fraction of the measurement's seconds in which the broker must have answered or been observed.
// Below it there is a warning.
const minAnswered = 0.8

// metric is one metric of the broker over the measurement.
type metric struct {
	na      string // reason for no number
	mean    float64
	samples []float64 // in the measurement, sorted
}

func (f metric) value(statistic string) plan.Value {
	switch {
	case f.na != "":
		return plan.Value{NA: f.na}
	case statistic == "mean":
		return plan.Value{Number: f.mean}
	case statistic == "p50":
		return plan.Value{Number: stats.Median(f.samples)}
	}
	return plan.Value{Number: f.samples[len(f.samples)-1]}
}

// brokerMetrics are the metrics of a broker.
type brokerMetrics struct {
	metrics           map[string]metric
	nodes             []*node // nodes whose processes were measured
	observed          bool    // by observers
	probed            bool
	answered, lacking int // times at which the broker reported metrics, and those at which a metric lacked a node
}

// addValues adds the values of all metrics.
func (b brokerMetrics) addValues(values map[string]plan.Value) {
	for name, f := range b.metrics {
		for _, s := range plan.MetricStatistics() {
			values[plan.MetricValue(name, s)] = f.value(s)
		}
	}
}

// brokerMetricsOf returns the metrics that the broker reports and those that hosts report of its processes. If both
// exist, those of hosts are used.
func brokerMetricsOf(in *input) brokerMetrics {
	b := brokerMetrics{metrics: map[string]metric{}}
	byName := map[string][]record.ProbeSample{}
	moments := map[int64]bool{}
	for _, s := range in.record.Probes() {
		byName[s.Name] = append(byName[s.Name], s)
		if b.probed = true; !moments[s.At] && s.At >= 0 && time.Duration(s.At) <= in.span.length() {
			moments[s.At] = true
			b.answered++
		}
	}
	for _, f := range in.task.Metrics.All() {
		moments, incomplete := momentsOf(f, byName[f.Name], in.span.length())
		b.lacking = max(b.lacking, incomplete)
		mean, samples := summary(f, moments, in.span.length())
		one := metric{mean: mean, samples: slices.Sorted(slices.Values(samples))}
		if len(samples) == 0 {
			one.na = NANotReported
			if slices.Contains(plan.ProcessMetrics(), f.Name) {
				one.na = NANoProcess
			}
		}
		b.metrics[f.Name] = one
	}
	processes := processMetricsOf(in)
	maps.Copy(b.metrics, processes.metrics)
	b.nodes, b.observed = processes.nodes, processes.observed
	return b
}

// moment is a metric at one time, of all nodes.
type moment struct {
	at    time.Duration
	since time.Duration // time of the previous moment, for metrics that cover the time since then
	first bool          // there is no previous moment
	value float64
}

// momentsOf combines the samples of one metric over nodes, in order of time: their sum or maximum. Moments that lack a
// node are left out, because they would look complete. incomplete is the number of these.
func momentsOf(f drivers.MetricInfo, samples []record.ProbeSample, span time.Duration) (moments []moment, incomplete int) {
	nodes := map[string]bool{}
	for _, s := range samples {
		if s.At >= 0 && time.Duration(s.At) <= span {
			nodes[s.Node] = true
		}
	}
	before, first := time.Duration(0), true
	for len(samples) > 0 {
		n := 1
		for n < len(samples) && samples[n].At == samples[0].At {
			n++
		}
		m := moment{at: time.Duration(samples[0].At), since: before, first: first}
		for i, s := range samples[:n] {
			if f.Sum || i == 0 {
				m.value += s.Value
			} else {
				m.value = max(m.value, s.Value)
			}
		}
		switch {
		case n >= len(nodes):
			moments = append(moments, m)
		case m.at >= 0 && m.at <= span:
			incomplete++
		}
		before, first, samples = m.at, false, samples[n:]
	}
	return moments, incomplete
}

// summary returns the mean of a metric over the measurement, weighted by time, and its samples. A sample of a moment
// stands for the time that is closer to it than to its neighbours. A sample since the previous moment stands for that
// interval. The first of these has no known beginning, and counts only if there is no other.
func summary(f drivers.MetricInfo, moments []moment, span time.Duration) (mean float64, values []float64) {
	sinceLast := plan.SamplesTime(f)
	inside := slices.DeleteFunc(slices.Clone(moments), func(m moment) bool {
		if sinceLast {
			m.at = (m.since + m.at) / 2
		}
		return m.at < 0 || m.at > span || sinceLast && m.first && len(moments) > 1
	})
	var total float64
	for i, m := range inside {
		from, to := time.Duration(0), span
		if sinceLast {
			from, to = max(m.since, 0), min(m.at, span)
		} else {
			if i > 0 {
				from = (inside[i-1].at + m.at) / 2
			}
			if i+1 < len(inside) {
				to = (m.at + inside[i+1].at) / 2
			}
		}
		values = append(values, m.value)
		length := max(time.Nanosecond, to-from).Seconds()
		total += length
		mean += (m.value - mean) * length / total
	}
	return mean, values
}

// processMetric is a metric that hosts report of the broker's processes.
type processMetric struct {
	name string
	of   func(record.HostSample) (value float64, missing string)
	max  bool // the value of a second is the maximum of its samples, not their mean
	once bool // the metric belongs to a place, and counts once for all nodes there
}

var processMetrics = []processMetric{
	{name: drivers.MetricCPU, of: func(s record.HostSample) (float64, string) { return s.BrokerCPU, "" }},
	{name: drivers.MetricRSS, of: func(s record.HostSample) (float64, string) { return float64(s.BrokerRSS), "" },
		max: true},
	{name: drivers.MetricDiskRead, of: func(s record.HostSample) (float64, string) { return s.DiskRead, s.NoDisk }},
	{name: drivers.MetricDiskWrite, of: func(s record.HostSample) (float64, string) { return s.DiskWrite, s.NoDisk }},
	{name: drivers.MetricNetIn, of: func(s record.HostSample) (float64, string) { return s.NetIn, s.NoNet }, once: true},
	{name: drivers.MetricNetOut, of: func(s record.HostSample) (float64, string) { return s.NetOut, s.NoNet }, once: true},
}

// node is a part of the broker: its processes on one host, or those that an observer identifies by one configuration.
type node struct {
	place   string
	samples []record.HostSample
	known   time.Duration
}

// processMetricsOf returns the metrics of the broker's processes that hosts report. There are none if no agent was to
// measure them. If there are observers, only their samples count.
func processMetricsOf(in *input) (b brokerMetrics) {
	broker := in.task.Cell.Broker
	observed := in.cell.record.Observed(broker.Name) // observers belong to no group
	var away []string                                // observers that did not measure the processes until the end
	for _, e := range in.cell.facts.Events {
		if e.Kind == EventNotObserved && strings.HasPrefix(e.Detail, NotObserved(broker.Name, e.Agent, "")) {
			away = append(away, e.Agent)
		}
	}
	if len(broker.Process) == 0 && len(observed) == 0 && len(away) == 0 {
		return b
	}
	missing := ""
	b.metrics, b.observed = map[string]metric{}, len(observed) > 0
	b.nodes, missing = nodesOf(in, observed, away)
	for _, f := range processMetrics {
		b.metrics[f.name] = f.metric(b.nodes, in.span.length(), missing)
	}
	return b
}

// nodesOf returns the nodes of the broker, and the reason for missing metrics where samples do not state one. If an
// observer never measured, no node is returned, because the sum of the others would look complete.
func nodesOf(in *input, observed map[string][]record.HostSample, away []string) (all []*node, missing string) {
	for _, agent := range away {
		if len(observed[agent]) == 0 {
			return nil, NANotObserved
		}
	}
	by := map[string]*node{}
	note := func(key, place string, samples []record.HostSample) {
		_, known := meanOf(samples, in.span.length(),
			func(s record.HostSample) (float64, bool) { return 0, s.HasBroker })
		if n := by[key]; n == nil || known > n.known {
			by[key] = &node{place: place, samples: samples, known: known}
		}
	}
	missing = NANoProcess
	for _, agent := range slices.Sorted(maps.Keys(observed)) {
		missing = NANotFound
		s := observed[agent][0]
		note(s.Place+" "+s.Node, s.Place, observed[agent])
	}
	if len(observed) == 0 {
		hosts, samples := map[string]string{}, in.record.Hosts()
		for _, a := range in.facts.Agents {
			hosts[a.Agent] = cmp.Or(a.Host, a.Clock)
		}
		for _, agent := range slices.Sorted(maps.Keys(samples)) {
			note(hosts[agent], hosts[agent], samples[agent])
		}
		maps.DeleteFunc(by, func(_ string, n *node) bool { return n.known == 0 }) // without the broker
	}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		all = append(all, by[key])
	}
	return all, missing
}

// metric returns the metric as a sum over nodes: its mean, and its value per second. Seconds that lack a node are left
// out.
func (f processMetric) metric(nodes []*node, span time.Duration, missing string) metric {
	if f.once { // nodes are in order of their places
		nodes = slices.CompactFunc(slices.Clone(nodes), func(a, b *node) bool { return a.place == b.place })
	}
	whole, complete := 0.0, map[int]int{}
	sums := map[int]float64{}
	for _, n := range nodes {
		mean, seconds, why := f.over(n.samples, span)
		whole += mean
		missing = cmp.Or(why, missing)
		for second, v := range seconds {
			sums[second] += v
			complete[second]++
		}
	}
	var values []float64
	for second, v := range sums {
		if complete[second] == len(nodes) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return metric{na: missing}
	}
	return metric{mean: whole, samples: slices.Sorted(slices.Values(values))}
}

// over returns a metric's mean over the measurement and its value per second. A sample belongs to the second of its
// middle. missing is the reason why samples have no number.
func (f processMetric) over(samples []record.HostSample, span time.Duration) (mean float64, seconds map[int]float64,
	missing string) {
	known := func(s record.HostSample) (float64, bool) {
		v, why := f.of(s)
		if why != "" && s.HasBroker {
			missing = why
		}
		return v, why == "" && s.HasBroker
	}
	mean, _ = meanOf(samples, span, known)
	weight := map[int]float64{}
	seconds = map[int]float64{}
	inside(samples, span, func(s record.HostSample, from, to time.Duration) {
		v, is := known(s)
		length, second := (to - from).Seconds(), int((from+to)/2/time.Second)
		switch {
		case is && f.max:
			seconds[second] = max(seconds[second], v)
		case is:
			weight[second] += length
			seconds[second] += (v - seconds[second]) * length / weight[second]
		}
	})
	return mean, seconds, missing
}

// inside calls f for each host sample in the measurement, with the part of the measurement that the sample covers. A
// sample covers the time since the previous one. The first sample has no known beginning, because it includes
// preparation. It counts only if there is no other.
func inside(samples []record.HostSample, span time.Duration, f func(s record.HostSample, from, to time.Duration)) {
	count := func(s record.HostSample, from int64) bool {
		from, to := max(0, from), min(s.At, int64(span))
		if from >= to {
			return false
		}
		f(s, time.Duration(from), time.Duration(to))
		return true
	}
	any := false
	for i := range samples[min(1, len(samples)):] {
		any = count(samples[i+1], samples[i].At) || any
	}
	if !any && len(samples) > 0 {
		count(samples[0], 0)
	}
}

// meanOf returns the time-weighted mean of a metric over the measurement, and the total time of its samples.
func meanOf(samples []record.HostSample, span time.Duration, of func(record.HostSample) (float64, bool)) (mean float64,
	known time.Duration) {
	inside(samples, span, func(s record.HostSample, from, to time.Duration) {
		if v, is := of(s); is {
			known += to - from
			mean += (v - mean) * float64(to-from) / float64(known)
		}
	})
	return mean, known
}

// agentMean returns the value of a mean over agents' processes: the maximum of all agents.
func agentMean(of func(record.HostSample) float64) valueOf {
	return func(m *measurements) plan.Value {
		v := plan.Value{NA: NANotMeasured}
		for _, samples := range m.in.record.Hosts() {
			mean, known := meanOf(samples, m.in.span.length(),
				func(s record.HostSample) (float64, bool) { return of(s), true })
			if known > 0 {
				v = plan.Value{Number: max(mean, v.Number)}
			}
		}
		return v
	}
}

// agentRSS returns the maximum memory of any agent's process during the measurement.
func agentRSS(m *measurements) plan.Value {
	v := plan.Value{NA: NANotMeasured}
	for _, samples := range m.in.record.Hosts() {
		inside(samples, m.in.span.length(), func(s record.HostSample, _, _ time.Duration) {
			v = plan.Value{Number: max(float64(s.AgentRSS), v.Number)}
		})
	}
	return v
}

// runtimeQuantile returns the value of a quantile that Go's runtime measured in the agents' processes. Scheduling is
// always measured. Without it, the absence of GC pauses means that nothing was measured. The maximum of no pauses is 0.
func runtimeQuantile(s record.Series, q float64) valueOf {
	return func(m *measurements) plan.Value {
		if m.in.hists[record.Scheduling].Count() == 0 {
			return plan.Value{NA: NANotMeasured}
		}
		return distribution{m.in.hists[s], m.in.hists[s]}.quantile(q)
	}
}
