package engine

import (
	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// Topology is what a task needs at the broker.
func Topology(t plan.Task) drivers.Topology {
	w := t.Cell.Workload
	return drivers.Topology{
		Name:          t.Topic(),
		Queues:        w.Topology.Queues,
		Subscriptions: w.Topology.Subscriptions,
		Bindings:      w.Topology.Bindings,
		QueueNode:     drivers.Node(w.Topology.QueueNode),
		Persistent:    w.Publishers.Persistent,
		Publishers:    w.Publishers.Nodes * w.Publishers.Threads,
		Consumers:     w.Consumers.Nodes * w.Consumers.Threads * w.Topology.Subscriptions,
	}
}

// consumerConnections keeps the connections of consumers apart from those of publishers.
const consumerConnections = 1 << 20

// connection numbers the connection of thread i of one role on one agent.
func connection(t plan.Topology, i int) int {
	if t.Connections == "shared" {
		return 0
	}
	return i / max(1, t.Channels)
}
