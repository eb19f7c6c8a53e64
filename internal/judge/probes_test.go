package judge

import (
	"fmt"
	"math"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// addProbes adds values of a metric of a node, by time.
func (x *taskBuilder) addProbes(name, node string, values map[time.Duration]float64) {
	var all []record.ProbeSample
	for at, v := range values {
		all = append(all, record.ProbeSample{At: int64(at), Name: name, Node: node, Value: v})
	}
	x.merge.Add(record.Snapshot{Task: x.task.ID, Agent: "prober", Seq: x.next + uint64(len(x.merge.Probes())),
		Probes: all})
}

// The values of nodes are summed at each time. The mean is weighted by time, and only the measurement counts.
func TestMetricsOfTheBroker(t *testing.T) {
	s := time.Second
	x := newTaskBuilder(nil)
	x.steadyLoad(100, deliverAtOnce)
	// Of the sums 4, 8 and 2 at 0, 2 and 10 s, the first represents one second, the second five, the last four.
	x.addProbes("memory", "a", map[time.Duration]float64{-s: 900, 0: 1, 2 * s: 3, 10 * s: 1, 11 * s: 900})
	x.addProbes("memory", "b", map[time.Duration]float64{-s: 900, 0: 3, 2 * s: 5, 10 * s: 1, 11 * s: 900})
	x.addProbes("connections", "", map[time.Duration]float64{5 * s: 7})
	o := x.judge()
	checkValue(t, o, "broker.memory.mean", (1*4+5*8+4*2)/10.0)
	checkValue(t, o, "broker.memory.p50", 4)
	checkValue(t, o, "broker.memory.max", 8)
	for _, statistic := range plan.MetricStatistics() {
		checkValue(t, o, "broker.connections."+statistic, 7)
		checkNA(t, o, "broker.channels."+statistic, NANotReported)
	}
}

// Metrics that only a driver declares become values of all statistics: a sum or the maximum of nodes, of a moment or
// since the last probe.
func TestMetricsOfADriver(t *testing.T) {
	s := time.Second
	x := newTaskBuilder(nil)
	x.task.Metrics = plan.Metrics{{Name: "segments", Unit: "count", Doc: "d", Sum: true},
		{Name: "term", Unit: "count", Doc: "d"}, {Name: "flushes", Unit: "flushes/s", Doc: "d", Sum: true},
		{Name: "never", Unit: "pages", Doc: "d"}}
	x.steadyLoad(100, deliverAtOnce)
	for name, of := range map[string]map[time.Duration]float64{"segments": {0: 4, 10 * s: 6}, "term": {0: 2, 10 * s: 3},
		"flushes": {0: 900, 2 * s: 10, 10 * s: 20}, "undeclared": {s: 1}} {
		x.addProbes(name, "a", of)
		x.addProbes(name, "b", map[time.Duration]float64{0: 1, 2 * s: 1, 10 * s: 1})
	}
	o := x.judge()
	checkValue(t, o, "broker.segments.mean", 6)
	checkValue(t, o, "broker.segments.max", 7)
	checkValue(t, o, "broker.term.p50", 2.5)
	checkValue(t, o, "broker.flushes.mean", (11*2+21*8)/10.0)
	checkNA(t, o, "broker.never.max", NANotReported)
	if _, has := o.Values["broker.undeclared.mean"]; has || len(o.Values) != len(x.task.Metrics.Values()) {
		t.Errorf("got %d values, want %d, without undeclared ones", len(o.Values), len(x.task.Metrics.Values()))
	}
	x.facts.Agents[0].Lost = true
	checkFlag(t, x.judge(), plan.Degraded, true, "broker.segments.mean")
}

// A metric since the last probe counts for that period, by its share in the measurement.
func TestMetricsSinceTheLastProbe(t *testing.T) {
	s := time.Second
	for _, c := range []struct {
		name           string
		samples        map[time.Duration]float64
		mean, p50, max float64
	}{
		{"every second", map[time.Duration]float64{0: 9, s: 1, 2 * s: 2, 10 * s: 3}, (1 + 2 + 8*3) / 10.0, 2, 3},
		{"a little late", map[time.Duration]float64{0: 9, s: 1, 10*s + s/100: 3}, (1 + 9*3) / 10.0, 2, 3},
		{"a sample from before the start", map[time.Duration]float64{-s: 9, s: 4, 10 * s: 2}, (4 + 9*2) / 10.0, 3, 4},
		{"a sample in the drain", map[time.Duration]float64{0: 9, 10 * s: 2, 11 * s: 8}, 2, 2, 2},
		{"a first sample of unknown beginning", map[time.Duration]float64{5 * s: 9, 10 * s: 2}, 2, 2, 2},
		{"only a first sample", map[time.Duration]float64{5 * s: 9}, 9, 9, 9},
	} {
		x := newTaskBuilder(nil)
		x.steadyLoad(10, deliverAtOnce)
		x.addProbes("cpu", "a", c.samples)
		o := x.judge()
		for name, want := range map[string]float64{"mean": c.mean, "p50": c.p50, "max": c.max} {
			if v := o.Values["broker.cpu."+name]; v.NA != "" || v.Number < want*0.999 || v.Number > want*1.001 {
				t.Errorf("%s: %s: got %v, want %v", c.name, name, v, want)
			}
		}
	}
}

// A metric of a moment represents the time around it: the mean of a uniformly growing depth is its middle, for any
// probe times within the seconds.
func TestMeansOfMomentsAreNotBiased(t *testing.T) {
	for name, c := range map[string]struct {
		at   []float64 // in seconds
		mean float64   // of a depth that grows by 100 per second
	}{
		"on the second":                {[]float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 500},
		"between seconds":              {[]float64{0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5}, 500},
		"with warm-up before":          {[]float64{-1, 0, 5, 10, 11}, 500},
		"long before the end":          {[]float64{0, 2, 4}, 0*0.1 + 200*0.2 + 400*0.7},
		"once":                         {[]float64{4}, 400},
		"the last has a larger weight": {[]float64{0, 8}, 800 * 0.6},
	} {
		x := newTaskBuilder(nil)
		x.steadyLoad(10, deliverAtOnce)
		depths := map[time.Duration]float64{}
		for _, at := range c.at {
			depths[time.Duration(at*float64(time.Second))] = 100 * at
		}
		x.addProbes("queue_depth", "", depths)
		if v := x.judge().Values["broker.queue_depth.mean"]; v.NA != "" || math.Abs(v.Number-c.mean) > 0.001 {
			t.Errorf("%s: got %+v, want %v", name, v, c.mean)
		}
	}
}

// Metrics of half a cluster are not shown as those of the whole. The reader must know which nodes they cover.
func TestMetricsThatLackANode(t *testing.T) {
	s := time.Second
	x := newTaskBuilder(nil)
	x.steadyLoad(10, deliverAtOnce)
	a, b := map[time.Duration]float64{}, map[time.Duration]float64{}
	for i := range 11 {
		a[time.Duration(i)*s] = 10
		if i < 6 {
			b[time.Duration(i)*s] = 20
		}
	}
	x.addProbes("memory", "a", a)
	x.addProbes("memory", "b", b)
	o := x.judge()
	checkValue(t, o, "broker.memory.mean", 30)
	checkValue(t, o, "broker.memory.max", 30)
	checkWarnings(t, o, true, "did not include all nodes 5 times")
}

func TestFewBrokerMetricsAreReported(t *testing.T) {
	for answered, want := range map[int]bool{9: false, 7: true} {
		x := newTaskBuilder(nil)
		x.steadyLoad(10, deliverAtOnce)
		values := map[time.Duration]float64{-time.Second: 1}
		for i := range answered {
			values[time.Duration(i)*time.Second] = 1
		}
		x.addProbes("memory", "", values)
		checkWarnings(t, x.judge(), want, fmt.Sprintf("reported its metrics %d times", answered))
	}
}

// The broker's CPU as measured by the host and as reported by the broker are different metrics: only one of them is
// shown.
func TestCPUIsOfOneSource(t *testing.T) {
	x := newTaskBuilder(nil)
	x.task.Cell.Broker.Process = plan.Processes{{Port: 1}}
	x.steadyLoad(10, deliverAtOnce)
	x.addProbes("cpu", "", map[time.Duration]float64{0: 5, 10 * time.Second: 5})
	checkNA(t, x.judge(), "broker.cpu.mean", NANoProcess)
	x.samples = []record.HostSample{sampleAt(0, 1, 1), sampleAt(10*time.Second, 1, 1)}
	checkValue(t, x.judge(), "broker.cpu.mean", 2)
}
