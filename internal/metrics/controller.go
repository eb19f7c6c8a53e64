package metrics

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

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
	return handler(&controllerCollector{conn, status, points, log}, version, log)
}

type controllerCollector struct {
	conn   *wire.Client
	status ControllerStatus
	points Points
	log    *slog.Logger
}

// Describe sends no descriptions: the set of metrics depends on the leadership.
func (*controllerCollector) Describe(chan<- *prometheus.Desc) {}

// Collect collects the state of the controller and, if it leads, requests that of the fleet from the control plane.
func (c *controllerCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	s, epoch := sheet(to), c.status.Leads()
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
		"room": c.room} {
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
	for _, state := range []string{wire.StateQueued, wire.StateRunning, string(wire.EndDone),
		string(wire.EndInterrupted),
		string(wire.EndFailed), string(wire.EndRefused), string(wire.EndNoAgents), string(wire.EndNoTarget),
		string(wire.EndQuarantined)} {
		n[state] = 0
	}
	for _, r := range runs {
		n[r.State]++
	}
	for state, count := range n {
		s.gauge("runs",
			"Runs of the control plane by state: queued, running, or the result.",
			float64(count), "state", state)
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

// room reports the size and the limit of the record.
func (c *controllerCollector) room(ctx context.Context, s sheet) error {
	used, limit, err := c.conn.RecordRoom(ctx)
	if err != nil {
		return err
	}
	s.gauge("record_bytes", "Bytes that the streams of runs hold on the control plane.", float64(used))
	s.gauge("record_limit_bytes",
		"Bytes that they may hold. Beyond them the oldest copied run is deleted; without one no further run begins.",
		float64(limit))
	return nil
}
