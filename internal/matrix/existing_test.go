package matrix

import (
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

func TestExistingQueues(t *testing.T) {
	run := expand(t, head+`axes: {broker: ["b"], queues: [1, 3]}
		cell: {
			axis: _
			topology: {queues: axis.queues, existing: [if axis.queues > 1 {"orders-%d"}, "orders"][0]}
			consumers: threads: axis.queues
		}`, Narrow{})
	if len(run.Cells) != 2 || run.Cells[0].Workload.Topology.Existing != "orders" ||
		run.Cells[1].Workload.Topology.Existing != "orders-%d" {
		t.Fatalf("cells %+v", run.Cells)
	}
	if r := run.Cells[0].Retry; r.Again(plan.FailedAgentLost, nil) {
		t.Errorf("retry %+v repeats a task whose lost agent may still receive messages", r)
	}
	own := expand(t, head+`axes: broker: ["b"]`, Narrow{}).Cells[0]
	if c := run.Cells[0]; c.Guarantees != (plan.Guarantees{}) || c.Label == own.Label || c.ID == own.ID ||
		own.Guarantees == (plan.Guarantees{}) {
		t.Errorf("guarantees %+v and label %q of queues whose settings are not known", c.Guarantees, c.Label)
	}
}

// TestWithoutPublishers proves that the shorthand axes add no publishers to a cell without.
func TestWithoutPublishers(t *testing.T) {
	run := expand(t, head+`axes: {broker: ["b"], nodes: [2], threads: [3]}
		cell: {publishers: nodes: 0, topology: existing: "orders"}`, Narrow{})
	w := run.Cells[0].Workload
	if w.Publishers.Nodes != 0 || w.Consumers.Nodes != 2 || w.Consumers.Threads != 3 || run.Agents != 2 {
		t.Errorf("publishers %+v, consumers %+v, %d agents", w.Publishers, w.Consumers, run.Agents)
	}
}

func TestErrorsOfExistingQueues(t *testing.T) {
	for text, want := range map[string]string{
		`broker: "s", topology: existing: "orders"`: "m.cue:2:41: cell.topology.existing: driver simple with the options " +
			"of broker s cannot use existing queues",
		`broker: "b", topology: existing: "a b"`:                                                                                          "topology.existing",
		`broker: "b", consumers: threads: 2, topology: {existing: "orders", queues: 2}`:                                                   "write %d for the number of the queue",
		`broker: "b", topology: {existing: "orders", subscriptions: 2}`:                                                                   "cell.topology.subscriptions: queues of topology.existing",
		`broker: "b", topology: {existing: "orders", bindings: 2}`:                                                                        "cell.topology.bindings: queues of topology.existing",
		`broker: "b", topology: {existing: "orders", churn: rate: 1}`:                                                                     "cell.topology.churn: queues of topology.existing",
		`broker: "b", topology: {existing: "orders", queueNode: 1}`:                                                                       "cell.topology.queueNode: queues of topology.existing",
		`broker: "b", retry: {on: ["run", "agent-lost"], max: 1}, topology: existing: "orders"`:                                           `cell.retry.on: "agent-lost"`,
		`broker: "b", search: while: "p99 < 1s", topology: existing: "orders"`:                                                            "cell.search: a trial would receive",
		`broker: "b", topology: existing: "lockstep-1"`:                                                                                   "which cleanup removes",
		`broker: "b", consumers: nack: 0.1, topology: existing: "orders"`:                                                                 "cell.consumers.nack: messages of other programs",
		`broker: "b", groups: {x: topology: existing: "orders", y: {}}`:                                                                   "groups.x.topology.existing: groups run at the same time",
		`broker: "b", publishers: nodes: 0`:                                                                                               "m.cue:2:40: cell.publishers.nodes: 0, and the queues are declared empty",
		`broker: "b", publishers: nodes: 0, consumers: nodes: 0, topology: existing: "orders"`:                                            "0, and consumers.nodes is 0",
		`broker: "b", publishers: {nodes: 0, count: 5}, topology: existing: "orders"`:                                                     "publishers.count: it has no effect",
		`broker: "b", publishers: {nodes: 0, rate: 5}, topology: existing: "orders"`:                                                      "publishers: a rate or profile has no effect",
		`broker: "b", publishers: nodes: 0, warmup: "auto", topology: existing: "orders"`:                                                 "warmup: \"auto\" needs publishers",
		`broker: "b", publishers: nodes: 0, require: "p99 < 1s", topology: existing: "orders"`:                                            "there are no publishers",
		`broker: "b", publishers: nodes: 0, faults: [{kind: "cut", at: "1s", for: "1s", on: "publishers"}], topology: existing: "orders"`: "the cell has no publishers; use consumers",
	} {
		if got := errorsText(t, head+`cell: {`+text+`}`, Narrow{}); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", text, got, want)
		}
	}
}
