package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// phases are the phases of a task.
var phases = []plan.Phase{plan.PhasePrepare, plan.PhaseReady, plan.PhaseWarmup, plan.PhaseMeasure, plan.PhaseDrain,
	plan.PhaseTeardown}

// AgentStatus is implemented by agent.Status.
type AgentStatus interface {
	Slots() []wire.Heartbeat
	Phase(slot string) plan.Phase
}

// Agent returns the handler for the metrics of an agent. linked reports whether it is connected to the control plane.
func Agent(status AgentStatus, linked func() bool, version string, log *slog.Logger) http.Handler {
	return handler(&agentCollector{status, linked}, version, log)
}

type agentCollector struct {
	status AgentStatus
	linked func() bool
}

// Describe sends no descriptions: the set of metrics depends on the state of the agent.
func (*agentCollector) Describe(chan<- *prometheus.Desc) {}

// Collect collects the state of the agent.
func (a *agentCollector) Collect(to chan<- prometheus.Metric) {
	s := sheet(to)
	s.gauge("control_plane_linked", "Whether this process has a link to the control plane.", truth(a.linked()))
	for _, slot := range a.status.Slots() {
		s.gauge("agent_busy", "Whether this slot works on a task.", truth(slot.Busy != ""), "agent", slot.Agent)
		s.gauge("agent_draining", "Whether this slot leaves when it is idle.", truth(slot.Draining), "agent",
			slot.Agent)
		now := a.status.Phase(slot.Agent)
		for _, phase := range phases {
			s.gauge("agent_task_phase",
				"The phase in which this slot's task is: 1 for one of them, or for none while there is no task.",
				truth(now == phase), "agent", slot.Agent, "phase", string(phase))
		}
		if o := slot.Offset; o != nil {
			s.gauge("agent_clock_offset_seconds", "How far the host's clock is ahead of the controller's.",
				float64(o.Offset)/1e9, "agent", slot.Agent)
			s.gauge("agent_clock_bound_seconds", "How far the truth may be off that, either way.",
				float64(o.Bound)/1e9, "agent", slot.Agent)
		}
	}
}
