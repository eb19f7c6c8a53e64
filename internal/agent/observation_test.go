package agent

import (
	"os"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// All processes of an observer must be found, and a restarted process is found again.
func TestObservedProcesses(t *testing.T) {
	p := aProc(t)
	b := newObservedBroker(procfs(p), "here", plan.Observation{Broker: "b", As: "driver"},
		plan.Processes{{Port: 5672}, {Command: "node-b"}})
	if h := b.sample(); h.HasBroker || h.Broker != "b" || h.Place != "here" || h.Node != "command:node-b, port:5672" {
		t.Errorf("%+v: one process of two is there", h)
	}
	p.process(t, 400, "node-b\x00", 500, 1000, "4")
	b.sample() // found
	if h := b.sample(); !h.HasBroker || h.BrokerRSS != 6000*int64(os.Getpagesize()) || h.AgentRSS != 0 {
		t.Errorf("%+v: want both processes, and nothing of the agent", h)
	}
	p.process(t, 400, "node-b\x00", 2, 1000, "9") // restarted
	if h := b.sample(); h.HasBroker {
		t.Errorf("%+v: the metrics of two processes were mixed", h)
	}
	p.process(t, 400, "node-b\x00", 3, 2000, "9")
	if h := b.sample(); !h.HasBroker || h.BrokerCPU < 0 || h.BrokerRSS != 7000*int64(os.Getpagesize()) {
		t.Errorf("%+v: a process that was started again is not found", h)
	}
}
