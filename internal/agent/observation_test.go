package agent

import (
	"os"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// All processes of an observer must be found, and a restarted process is found again.
func TestObservedProcesses(t *testing.T) {
	p := newProc(t)
	b := newObservedBroker(procfs(p), "here", plan.Observation{Broker: "b", As: "driver"},
		plan.Processes{{Port: 5672}, {Command: "node-b"}})
	if h := b.sample(); h.HasBroker || h.Broker != "b" || h.Place != "here" || h.Node != "command:node-b, port:5672" {
		t.Errorf("one of two processes: got %+v, want no metrics", h)
	}
	p.process(t, 400, "node-b\x00", 500, 1000, "4")
	b.sample() // found
	if h := b.sample(); !h.HasBroker || h.BrokerRSS != 6000*int64(os.Getpagesize()) || h.AgentRSS != 0 {
		t.Errorf("both processes: got %+v, want 6000 pages, and no metrics of the agent", h)
	}
	p.process(t, 400, "node-b\x00", 2, 1000, "9") // restarted
	if h := b.sample(); h.HasBroker {
		t.Errorf("first sample after a restart: got %+v, want no metrics", h)
	}
	p.process(t, 400, "node-b\x00", 3, 2000, "9")
	if h := b.sample(); !h.HasBroker || h.BrokerCPU < 0 || h.BrokerRSS != 7000*int64(os.Getpagesize()) {
		t.Errorf("second sample after a restart: got %+v, want 7000 pages", h)
	}
}
