package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/stats"
)

// EventNotObserved is the kind of the controller's event by which a task's record says that an agent which should
// measure a broker's processes does not, from then on. NotObserved is its detail.
const EventNotObserved = "not-observed"

// NotObserved says in words that an agent does not measure a broker's processes.
func NotObserved(broker, agent, why string) string {
	return fmt.Sprintf("%s%s: %s", notObserved(broker), agent, why)
}

func notObserved(broker string) string {
	return fmt.Sprintf("not observed: broker %s by agent ", broker)
}

// minAnswered is the part of the measurement's seconds that the broker has to have answered in, or was observed in: the
// reader is warned below it.
const minAnswered = 0.8

// metric is one of the broker's over the measurement.
type metric struct {
	na      string // why it is not known
	mean    float64
	samples []float64 // in it, sorted
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

// brokerMetrics are what is known of a broker.
type brokerMetrics struct {
	metrics           map[string]metric
	nodes             []*node // whose processes were measured
	observed          bool    // by observers
	asked             bool
	answered, lacking int // moments in which the broker said anything, and those in which a metric lacked a node
}

// brokerMetricsOf are the metrics that the broker says of itself, and those that hosts say of its processes, which go
// before.
func brokerMetricsOf(in *input) brokerMetrics {
	b := brokerMetrics{metrics: map[string]metric{}}
	byName := map[string][]record.ProbeSample{}
	moments := map[int64]bool{}
	for _, s := range in.record.Probes() {
		byName[s.Name] = append(byName[s.Name], s)
		if b.asked = true; !moments[s.At] && s.At >= 0 && time.Duration(s.At) <= in.span.length() {
			moments[s.At] = true
			b.answered++
		}
	}
	for _, f := range plan.Metrics() {
		moments, incomplete := momentsOf(byName[f.Name], in.span.length())
		b.lacking = max(b.lacking, incomplete)
		mean, samples := summary(f, moments, in.span.length())
		one := metric{mean: mean, samples: slices.Sorted(slices.Values(samples))}
		if len(samples) == 0 {
			one.na = NANotSaid
		}
		b.metrics[f.Name] = one
	}
	processes := processMetricsOf(in)
	for _, f := range plan.ProcessMetrics() {
		b.metrics[f.Name] = metric{na: NANoProcess}
	}
	maps.Copy(b.metrics, processes.metrics)
	b.nodes, b.observed = processes.nodes, processes.observed
	return b
}

// moment is what a metric was at one time, all nodes added up.
type moment struct {
	at    time.Duration
	since time.Duration // the moment before, where the metric is of the time since then
	first bool          // there is none before
	value float64
}

// momentsOf adds up the nodes of one metric's samples, sorted by time. A moment that lacks a node which others have is
// left out: the sum of the rest would look like the whole.
func momentsOf(samples []record.ProbeSample, span time.Duration) (moments []moment, incomplete int) {
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
		for _, s := range samples[:n] {
			m.value += s.Value
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

// summary is the mean of a metric over the measurement, and its samples there. A sample of a moment stands for the time
// that is nearer to it than to its neighbours, and one of the time since the one before for that. The first of the
// latter has no known beginning: it counts only where there is no other.
func summary(f plan.Metric, moments []moment, span time.Duration) (mean float64, values []float64) {
	inside := slices.DeleteFunc(slices.Clone(moments), func(m moment) bool {
		if f.Since {
			m.at = (m.since + m.at) / 2
		}
		return m.at < 0 || m.at > span || f.Since && m.first && len(moments) > 1
	})
	var total float64
	for i, m := range inside {
		from, to := time.Duration(0), span
		if f.Since {
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

// processMetric is something that hosts say of the broker's processes.
type processMetric struct {
	name string
	of   func(record.HostSample) (value float64, missing string)
	most bool // a second is the greatest of its samples, not their mean
	once bool // it is of a place, whichever nodes are there
}

func processMetrics() []processMetric {
	disk := func(s record.HostSample, v float64) (float64, string) { return v, s.NoDisk }
	network := func(s record.HostSample, v float64) (float64, string) { return v, s.NoNet }
	return []processMetric{
		{name: "cpu", of: func(s record.HostSample) (float64, string) { return s.BrokerCPU, "" }},
		{name: plan.MetricRSS, of: func(s record.HostSample) (float64, string) { return float64(s.BrokerRSS), "" },
			most: true},
		{name: plan.MetricDiskRead, of: func(s record.HostSample) (float64, string) { return disk(s, s.DiskRead) }},
		{name: plan.MetricDiskWrite, of: func(s record.HostSample) (float64, string) { return disk(s, s.DiskWrite) }},
		{name: plan.MetricNetIn, of: func(s record.HostSample) (float64, string) { return network(s, s.NetIn) },
			once: true},
		{name: plan.MetricNetOut, of: func(s record.HostSample) (float64, string) { return network(s, s.NetOut) },
			once: true},
	}
}

// node is a part of the broker: its processes on one host, or those that an observer finds in one way.
type node struct {
	place   string
	samples []record.HostSample
	known   time.Duration
}

// processMetricsOf are the metrics of the broker's processes, as their hosts say; of none where no agent was to measure
// them. Observers alone count where there are any.
func processMetricsOf(in *input) (b brokerMetrics) {
	broker := in.task.Cell.Broker
	observed := in.cell.record.Observed(broker.Name) // observers are of no group
	var away []string                                // observers that did not, or not to the end, measure the processes
	for _, e := range in.cell.facts.Events {
		if e.Kind == EventNotObserved && strings.HasPrefix(e.Detail, notObserved(broker.Name)) {
			away = append(away, e.Agent)
		}
	}
	if len(broker.Process) == 0 && len(observed) == 0 && len(away) == 0 {
		return b
	}
	missing := ""
	b.metrics, b.observed = map[string]metric{}, len(observed) > 0
	b.nodes, missing = nodesOf(in, observed, away)
	for _, f := range processMetrics() {
		b.metrics[f.name] = f.metric(b.nodes, in.span.length(), missing)
	}
	return b
}

// nodesOf are those of the broker, and the reason for which there are no metrics where these do not say one. A node
// that was not seen at all leaves none: the rest would look like the whole.
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
		maps.DeleteFunc(by, func(_ string, n *node) bool { return n.known == 0 }) // no process of the broker is there
	}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		all = append(all, by[key])
	}
	return all, missing
}

// metric is the mean over the whole time, and its seconds, both of them sums over nodes. A second that some node does
// not know of is left out.
func (f processMetric) metric(nodes []*node, span time.Duration, missing string) metric {
	if f.once {
		places := map[string]bool{}
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool {
			again := places[n.place]
			places[n.place] = true
			return again
		})
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

// over is a metric's mean over the measurement, and what it was in each second, in which the middle of a sample lies;
// or why it is not known.
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
		case is && f.most:
			seconds[second] = max(seconds[second], v)
		case is:
			weight[second] += length
			seconds[second] += (v - seconds[second]) * length / weight[second]
		}
	})
	return mean, seconds, missing
}
