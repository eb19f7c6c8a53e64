package engine

import (
	"maps"
	"slices"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// If colocated, each agent's consumers consume from all queues of its own publishers, and no other agent uses them.
func TestColocatedAgentsHaveQueuesOfTheirOwn(t *testing.T) {
	for _, c := range []struct{ nodes, publishers, consumers, queues int }{{1, 3, 2, 2}, {2, 2, 2, 2}, {2, 1, 3, 2},
		{3, 4, 2, 6}, {4, 1, 1, 4}} {
		w := plan.Default()
		w.Publishers.Nodes, w.Publishers.Threads = c.nodes, c.publishers
		w.Consumers.Nodes, w.Consumers.Threads, w.Consumers.Colocate = c.nodes, c.consumers, true
		w.Topology.Queues = c.queues
		owner := map[int]string{}
		agents := make([]string, c.nodes)
		for i := range agents {
			agents[i] = string(rune('a' + i))
		}
		for _, a := range plan.Assign(plan.Task{Cell: plan.Cell{Workload: w}}, agents) {
			written, read := map[int]bool{}, map[int]bool{}
			for i := range a.Publishers.Count {
				written[queueOf(w, a.Publishers.First+i, w.Publishers.Threads)] = true
			}
			for i := range a.Consumers.Count {
				q := queueOf(w, a.Consumers.First+i, w.Consumers.Threads)
				if read[q] = true; owner[q] != "" && owner[q] != a.Agent {
					t.Errorf("%+v: agents %s and %s both consume from queue %d, want one agent per queue", c, owner[q],
						a.Agent, q)
				}
				owner[q] = a.Agent
			}
			for q := range written {
				if !read[q] {
					t.Errorf("%+v: agent %s publishes to queue %d but consumes only from %v", c, a.Agent, q,
						slices.Sorted(maps.Keys(read)))
				}
			}
		}
		if len(owner) != c.queues {
			t.Errorf("%+v: got %d queues with consumers, want %d", c, len(owner), c.queues)
		}
	}
}

// Connections of a role are numbered without gaps over all agents, so that they can be spread over nodes evenly.
func TestOrdinals(t *testing.T) {
	for _, c := range []struct {
		agents, threads, channels, subscriptions, publishers, consumers int
		connections                                                     string
	}{
		{2, 3, 1, 1, 6, 6, "per-thread"}, {2, 5, 2, 1, 6, 6, "per-thread"}, {3, 4, 1, 2, 3, 3, "shared"},
		{2, 3, 1, 2, 6, 12, "per-thread"}, {1, 1, 1, 1, 1, 1, "per-thread"},
	} {
		w := plan.Default()
		w.Publishers.Nodes, w.Publishers.Threads = c.agents, c.threads
		w.Consumers.Nodes, w.Consumers.Threads = c.agents, c.threads
		w.Topology.Connections, w.Topology.Channels, w.Topology.Subscriptions = c.connections, c.channels, c.subscriptions
		agents := make([]string, 2*c.agents)
		publishers, consumers := map[int]bool{}, map[int]bool{}
		for _, a := range plan.Assign(plan.Task{Cell: plan.Cell{Workload: w}}, agents) {
			e, err := New(Config{Assignment: a})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range e.publishers {
				publishers[p.conn.spec.Ordinal] = true
			}
			for _, x := range e.consumers {
				consumers[x.conn.spec.Ordinal] = true
			}
		}
		for role, got := range map[string]map[int]bool{"publishers": publishers, "consumers": consumers} {
			want := map[string]int{"publishers": c.publishers, "consumers": c.consumers}[role]
			all := slices.Sorted(maps.Keys(got))
			if len(all) != want || all[0] != 0 || all[len(all)-1] != want-1 {
				t.Errorf("%+v: ordinals of connections of %s: got %v, want 0 to %d", c, role, all, want-1)
			}
		}
	}
}
