package judge

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

func sampleAt(at time.Duration, cpu float64, rss int64) record.HostSample {
	return record.HostSample{At: int64(at), AgentCPU: cpu, AgentRSS: rss, HasBroker: true, BrokerCPU: 2 * cpu,
		BrokerRSS: 10 * rss}
}

func TestHostMetrics(t *testing.T) {
	x := newTaskBuilder(nil)
	x.task.Cell.Broker.Process = plan.Processes{{Port: 5672}}
	x.steadyLoad(100, deliverAtOnce)
	x.samples = []record.HostSample{
		sampleAt(-time.Second, 9, 9<<30), // preparation
		sampleAt(0, 9, 9<<30),            // warm-up
		sampleAt(time.Second, 0.5, 10), sampleAt(10*time.Second, 1.5, 30),
		sampleAt(20*time.Second, 9, 9<<30), // drain
	}
	x.merge.Add(record.Snapshot{Task: x.task.ID, Agent: "b", At: int64(time.Second), Seq: 1,
		Host: record.HostSample{At: int64(time.Second), AgentCPU: 0.1, AgentRSS: 50}})
	o := x.judge()
	checkValue(t, o, "agent.cpu", 1.4)
	checkValue(t, o, "agent.rss", 50)
	for name, want := range map[string]float64{
		"broker.cpu.mean": 2.8, "broker.cpu.p50": 2, "broker.cpu.max": 3, // of seconds 0 and 5
		"broker.rss.mean": 280, "broker.rss.p50": 200, "broker.rss.max": 300,
	} {
		checkValue(t, o, name, want)
	}
}

// Agents on one host observe the same broker. Agents on several hosts observe parts of it.
func TestBrokerOfSeveralHosts(t *testing.T) {
	at := func(agent string, second int, cpu float64) record.Snapshot {
		return record.Snapshot{Agent: agent, Seq: uint64(second),
			Host: record.HostSample{At: int64(second) * int64(time.Second), AgentCPU: 1, HasBroker: true,
				BrokerCPU: cpu, BrokerRSS: 10}}
	}
	x := newTaskBuilder(nil)
	x.task.Cell.Broker.Process = plan.Processes{{Port: 5672}}
	x.facts.Agents = []plan.AgentPart{{Agent: "p", Index: 0, Host: "one", Clock: "1"},
		{Agent: "q", Index: 1, Host: "one", Clock: "1"}, {Agent: "r", Index: 2, Host: "two", Clock: "2"}}
	x.steadyLoad(10, deliverAtOnce)
	for second := range 11 {
		x.merge.Add(at("p", second, 1))
		x.merge.Add(at("q", second, 1))
		if second < 10 { // the last second is unknown
			x.merge.Add(at("r", second, float64(second)))
		}
	}
	o := x.judge()
	checkValue(t, o, "broker.cpu.mean", 1+5)
	checkValue(t, o, "broker.cpu.p50", 1+5)
	checkValue(t, o, "broker.cpu.max", 1+9)
	checkValue(t, o, "broker.rss.max", 20)
}

// TestSamplesWeighByTheirTimeInTheMeasurement proves that samples are weighted by their time in the measurement.
// Otherwise a few milliseconds after the end would have the weight of a second, and use before the start would count.
func TestSamplesWeighByTheirTimeInTheMeasurement(t *testing.T) {
	s, ms := time.Second, time.Millisecond
	for _, c := range []struct {
		name    string
		samples []record.HostSample
		span    time.Duration
		want    float64
	}{
		{"no sample", nil, s, 0},
		{"a short sample after the end", []record.HostSample{sampleAt(0, 0, 1), sampleAt(s, 1, 1),
			sampleAt(1033*ms, 0, 1)}, s, 1},
		{"a sample that begins before the start", []record.HostSample{sampleAt(-500*ms, 0, 1), sampleAt(500*ms, 4, 1),
			sampleAt(s, 2, 1)}, s, 3},
		{"a sample that ends after the end", []record.HostSample{sampleAt(0, 0, 1), sampleAt(900*ms, 1, 1),
			sampleAt(1900*ms, 2, 1)}, s, 1.1},
		{"a first sample of unknown beginning", []record.HostSample{sampleAt(500*ms, 9, 1), sampleAt(s, 2, 1)}, s, 2},
		{"only a first sample", []record.HostSample{sampleAt(s, 2, 1)}, s, 2},
		{"only a first sample, and one in the drain", []record.HostSample{sampleAt(1100*ms, 2, 1), sampleAt(2100*ms, 5,
			1)}, s, 2},
		{"all samples before the start", []record.HostSample{sampleAt(-s, 2, 1), sampleAt(0, 5, 1)}, s, 0},
	} {
		got, known := meanOf(c.samples, c.span, func(s record.HostSample) (float64, bool) { return s.AgentCPU, true })
		if got < c.want*0.999 || got > c.want*1.001 || (known > 0) != (c.want > 0) || known > c.span {
			t.Errorf("%s: got %v cores over %v, want %v", c.name, got, known, c.want)
		}
	}
}
