package matrix

import (
	"fmt"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// validateExisting reports settings that need publishers in a cell without, and settings that need queues of the task's
// own in a cell with existing queues.
func validateExisting(out *problems, w plan.Workload) {
	p, c, t := w.Publishers, w.Consumers, w.Topology
	if p.Nodes == 0 {
		out.report(t.Existing == "", "publishers.nodes",
			"0, and the queues are declared empty; give 1 or more, or set topology.existing to consume its messages")
		out.report(c.Nodes == 0, "publishers.nodes", "0, and consumers.nodes is 0; give 1 or more of one of both")
		const without = "it has no effect without publishers; remove it"
		out.report(p.Count > 0, "publishers.count", without)
		out.report(p.Open(), "publishers", "a rate or profile has no effect without publishers; remove it")
		out.report(p.Lifetime != plan.Lifetime{}, "publishers.lifetime", without)
		out.report(c.Lifetime != plan.Lifetime{}, "consumers.lifetime",
			"the measurement would end while consumers are disconnected, as the cell has no publishers; remove it")
		out.report(w.Steady.Auto, "warmup", "\"auto\" needs publishers; give a duration, such as \"0s\"")
		out.report(w.Search != nil, "search", "a search varies the publish rate, and the cell has no publishers; remove it")
	}
	if t.Existing == "" {
		return
	}
	out.report(t.Queues > 1 && !strings.Contains(t.Existing, "%d"), "topology.existing",
		"%q is one name, and topology.queues is %d; write %%d for the number of the queue in it", t.Existing, t.Queues)
	out.report(strings.HasPrefix(t.Existing, "lockstep-"), "topology.existing",
		"%q begins like the names that Lockstep declares, which cleanup removes; use another queue", t.Existing)
	const own = "queues of topology.existing are not declared; remove one of both"
	out.report(w.Search != nil && c.Nodes > 0, "search",
		"a trial would receive the backlog of the one before it from topology.existing; remove one of both")
	out.report(t.Subscriptions > 1, "topology.subscriptions", own)
	out.report(t.Bindings > 1, "topology.bindings", own)
	out.report(t.Churn.Rate > 0, "topology.churn", own)
	out.report(drivers.Node(t.QueueNode).Chosen(), "topology.queueNode", own)
	out.report(c.Nodes > 0 && c.Nack > 0, "consumers.nack",
		"messages of other programs in topology.existing would be rejected; remove one of both")
}

// existingRetry returns the retry policy of a cell with existing queues. An agent that was cut off may still receive
// the messages of the next attempt, so the default is no retry.
func existingRetry(r *plan.Retry) (*plan.Retry, []problem) {
	if r == nil {
		return &plan.Retry{}, nil
	}
	for _, kind := range []plan.FailureKind{plan.FailedAgentLost, plan.FailedTimeout} {
		if slices.Contains(r.On, kind) {
			return r, []problem{{"retry.on", fmt.Sprintf(
				"%q: an agent that was cut off may still receive messages of the next attempt from topology.existing; remove it", kind)}}
		}
	}
	return r, nil
}

// unsupportedExisting returns an error if the cell uses existing queues, and the driver cannot.
func (w *worker) unsupportedExisting(b *plan.Broker, work plan.Workload) []problem {
	if work.Topology.Existing == "" {
		return nil
	}
	if d, _ := w.declarePart(b, work); d.Capabilities.Existing {
		return nil
	}
	return []problem{{"topology.existing", "driver " + b.Driver + " with the options of broker " + b.Name +
		" cannot use existing queues; remove topology.existing"}}
}
