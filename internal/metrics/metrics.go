// Package metrics serves the operational state of a controller or an agent to Prometheus, according to its conventions.
// The metrics are computed for each scrape from existing state, so that nothing is counted per message. Measurements
// are in records and not here.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// askTimeout limits the requests of a scrape to the control plane. Prometheus's default timeout is 10 s.
const askTimeout = 5 * time.Second

// collector sends the metrics of one scrape.
type collector func(sheet)

// Describe sends no descriptions: the set of metrics depends on the state of the process.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect collects the current state.
func (c collector) Collect(to chan<- prometheus.Metric) { c(sheet(to)) }

// handler serves a collector together with the metrics of the process.
func handler(c collector, version string, log *slog.Logger) http.Handler {
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

// sheet sends metrics. It builds a description per metric and scrape, because there are few of both.
type sheet chan<- prometheus.Metric

func (s sheet) gauge(name, help string, value float64, labels ...string) {
	s.add(prometheus.GaugeValue, name, help, value, labels)
}

func (s sheet) counter(name, help string, value float64, labels ...string) {
	s.add(prometheus.CounterValue, name, help, value, labels)
}

// add sends a metric. labels alternates names and values.
func (s sheet) add(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	s <- prometheus.MustNewConstMetric(prometheus.NewDesc("lockstep_"+name, help, names, nil), kind, value, values...)
}

// truth returns 1 or 0.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

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
	return handler(func(s sheet) {
		s.gauge("control_plane_linked", "Whether this process has a link to the control plane.", truth(linked()))
		for _, slot := range status.Slots() {
			s.gauge("agent_busy", "Whether this slot works on a task.", truth(slot.Busy != ""), "agent", slot.Agent)
			s.gauge("agent_draining", "Whether this slot leaves when it is idle.", truth(slot.Draining), "agent", slot.Agent)
			now := status.Phase(slot.Agent)
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
	}, version, log)
}

// ControllerStatus is implemented by controller.Status.
type ControllerStatus interface {
	Leads() uint64
	Tasks() map[plan.Verdict]uint64
}

// Points is implemented by sink.Counters: the numbers of points for InfluxDB.
type Points interface {
	Points() (written, dropped, left int64)
}

// Controller returns the handler for the metrics of a controller. Only the leading controller has the metrics of the
// fleet, so that sums over controllers count nothing twice. points is nil if the controller writes none.
func Controller(conn *wire.Client, status ControllerStatus, points Points, version string,
	log *slog.Logger) http.Handler {
	return handler((&controllerCollector{conn, status, points, log}).collect, version, log)
}

type controllerCollector struct {
	conn   *wire.Client
	status ControllerStatus
	points Points
	log    *slog.Logger
}

// collect collects the state of the controller and, if it leads, requests that of the fleet from the control plane.
func (c *controllerCollector) collect(s sheet) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	epoch := c.status.Leads()
	s.gauge("controller_leading",
		"Whether this controller leads. The sum over all controllers is 1, or nothing is executed.", truth(epoch > 0))
	if leader, err := c.conn.Leader(ctx); err == nil {
		s.gauge("controller_epoch",
			"The leadership under which runs are executed; it grows with each. Without a leader it is missing.",
			float64(leader.Epoch))
	}
	s.gauge("control_plane_linked", "Whether this process has a link to the control plane.", truth(c.conn.Linked()))
	for verdict, n := range c.status.Tasks() {
		s.counter("tasks_total", "Tasks to which this controller has given an outcome, by verdict.", float64(n),
			"verdict", string(verdict))
	}
	if c.points != nil {
		written, dropped, left := c.points.Points()
		for outcome, n := range map[string]int64{"written": written, "dropped": dropped, "left": left} {
			s.counter("sink_points_total",
				"Points made for InfluxDB; dropped: during a run; left: not written by the replay at its end. "+
					"A replay counts points again.",
				float64(n), "outcome", outcome)
		}
	}
	if epoch == 0 || !c.conn.Linked() {
		return
	}
	for what, ask := range map[string]func(context.Context, sheet) error{"runs": c.runs, "agents": c.agents,
		"storage": c.storage} {
		err := ask(ctx, s)
		if err != nil {
			c.log.Warn("collect metrics for Prometheus", "of", what, "error", err)
		}
		s.gauge("controller_metrics_known",
			"1 if the control plane answered the request for these metrics; otherwise they are missing.",
			truth(err == nil), "of", what)
	}
}

// runs counts runs by state. The control plane lists only the newest 1,000 ended runs.
func (c *controllerCollector) runs(ctx context.Context, s sheet) error {
	runs, err := c.conn.Runs(ctx)
	if err != nil {
		return err
	}
	n := map[string]int{}
	for _, state := range []string{wire.StateQueued, wire.StateRunning, string(wire.EndDone), string(wire.EndInterrupted),
		string(wire.EndFailed), string(wire.EndRefused), string(wire.EndNoAgents), string(wire.EndNoTarget),
		string(wire.EndQuarantined)} {
		n[state] = 0
	}
	for _, r := range runs {
		n[r.State]++
	}
	for state, count := range n {
		s.gauge("runs", "Runs of the control plane by state: queued, running, or the result.", float64(count), "state", state)
	}
	return nil
}

// agents counts agents by state.
func (c *controllerCollector) agents(ctx context.Context, s sheet) error {
	agents, err := c.conn.Agents(ctx)
	if err != nil {
		return err
	}
	n := map[string]int{}
	for _, a := range agents {
		n[a.State()]++
	}
	for _, state := range wire.AgentStates() {
		s.gauge("agents", "Agents that live, by state: each slot is one.", float64(n[state]), "state", state)
	}
	return nil
}

// storage reports the size and the limit of the streams of runs.
func (c *controllerCollector) storage(ctx context.Context, s sheet) error {
	used, limit, err := c.conn.StorageQuota(ctx)
	if err != nil {
		return err
	}
	s.gauge("record_bytes", "Size of the streams of runs on the control plane, in bytes.", float64(used))
	s.gauge("record_limit_bytes",
		"Maximum of lockstep_record_bytes. Above it the oldest copied run is deleted; without one no further run starts.",
		float64(limit))
	return nil
}
