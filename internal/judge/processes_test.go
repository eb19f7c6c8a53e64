package judge

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// addObserver adds ten seconds of an observer's samples of a node.
func (x *taskBuilder) addObserver(agent, place, node string, change func(second int, h *record.HostSample)) {
	for second := range 11 {
		at := int64(second) * int64(time.Second)
		h := record.HostSample{At: at, Broker: x.task.Cell.Broker.Name, Place: place, Node: node, HasBroker: true,
			BrokerCPU: 1, BrokerRSS: 10, DiskWrite: 100, NetIn: 1000, NetOut: 2000}
		if change != nil {
			change(second, &h)
		}
		x.merge.Add(record.Snapshot{Task: x.task.ID, Agent: agent, Seq: uint64(second + 1), At: at, Host: h})
	}
}

func TestObserversOfAClusterAreAddedUp(t *testing.T) {
	x := newTaskBuilder(nil)
	x.task.Cell.Broker.Name = "observed"
	x.steadyLoad(10, deliverAtOnce)
	x.addObserver("one", "host-1", "port:1", nil)
	x.addObserver("second", "host-1", "port:1", nil) // the same process
	x.addObserver("other", "host-1", "port:2", nil)  // another process on the same host, with the same network
	x.addObserver("two", "host-2", "port:1", func(second int, h *record.HostSample) {
		if second == 3 {
			h.HasBroker = false // restarted
			h.DiskWrite = 0
		}
		if second == 5 {
			h.DiskWrite = 900
		}
	})
	o := x.judge()
	for name, want := range map[string]float64{"broker.cpu.p50": 3, "broker.rss.max": 30, "broker.disk.write.p50": 300,
		"broker.disk.write.max": 1100,
		"broker.disk.read.max":  0, "broker.net.in.mean": 2000, "broker.net.out.max": 4000} {
		checkValue(t, o, name, want)
	}
	if v := o.Values["agent.cpu"]; v.NA != NANotMeasured {
		t.Errorf("agent.cpu: got %+v, want not measured: observers generate no load", v)
	}
}

func TestMetricsWithoutAnObserver(t *testing.T) {
	x := newTaskBuilder(nil)
	x.task.Cell.Broker.Name = "observed"
	x.steadyLoad(10, deliverAtOnce)
	x.addObserver("one", "host-1", "port:1", func(_ int, h *record.HostSample) { h.NoDisk = "no right" })
	o := x.judge()
	checkValue(t, o, "broker.rss.mean", 10)
	if v := o.Values["broker.disk.write.mean"]; v.NA != "no right" {
		t.Errorf("broker.disk.write.mean: got %+v, want the reason", v)
	}

	x.facts.Events = []plan.Event{{Agent: "two", Kind: EventNotObserved,
		Detail: NotObserved("observed", "two", "the agent is missing")}}
	o = x.judge()
	if v := o.Values["broker.rss.mean"]; v.NA != NANotObserved {
		t.Errorf("broker.rss.mean with a missing observer: got %+v, want %q", v, NANotObserved)
	}
	if n := len(o.Warnings); n == 0 ||
		o.Warnings[n-1] != "not observed: broker observed by agent two: the agent is missing" {
		t.Errorf("warnings: got %q, want the missing observer in the last one", o.Warnings)
	}

	y := newTaskBuilder(nil)
	y.task.Cell.Broker.Name = "observed"
	y.steadyLoad(10, deliverAtOnce)
	y.addObserver("one", "host-1", "port:1", func(_ int, h *record.HostSample) { h.HasBroker = false })
	if v := y.judge().Values["broker.cpu.mean"]; v.NA != NANotFound {
		t.Errorf("broker.cpu.mean without a process: got %+v, want %q", v, NANotFound)
	}
}
