package engine

import (
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Topology returns the topology that a task needs at the broker.
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
		Existing:      w.Topology.Existing,
	}
}

// queueOf returns the queue of thread i of a role with the given number of threads per node. Normally it is i mod
// queues. With colocation each agent receives only its own messages. Then the threads of node n of both roles use only
// the queues n, n + nodes, n + 2·nodes …
func queueOf(w plan.Workload, i, threads int) int {
	nodes, queues := w.Consumers.Nodes, w.Topology.Queues
	if !w.Consumers.Colocate || nodes < 1 {
		return i % queues
	}
	node, thread := i/threads, i%threads
	return (node + nodes*(thread%max(1, queues/nodes))) % queues
}

// ordinal returns the number of a connection among those of a role in the whole cell. number is that of the connection
// on this agent, and users the number of publishers or consumers per agent. first is the agent's first thread of
// threads.
func ordinal(t plan.Topology, number, users, first, threads int) int {
	return first/max(1, threads)*(connection(t, users-1)+1) + number
}

// connection returns the connection number of thread i of one role on one agent.
func connection(t plan.Topology, i int) int {
	if t.Connections == "shared" {
		return 0
	}
	return i / max(1, t.Channels)
}
