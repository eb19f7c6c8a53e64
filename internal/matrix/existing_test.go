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

func TestErrorsOfExistingQueues(t *testing.T) {
	for text, want := range map[string]string{
		`broker: "s", topology: existing: "orders"`: "m.cue:2:41: cell.topology.existing: driver simple with the options " +
			"of broker s cannot use existing queues",
		`broker: "b", topology: existing: "a b"`:                                                "topology.existing",
		`broker: "b", consumers: threads: 2, topology: {existing: "orders", queues: 2}`:         "write %d for the number of the queue",
		`broker: "b", topology: {existing: "orders", subscriptions: 2}`:                         "cell.topology.subscriptions: queues of topology.existing",
		`broker: "b", topology: {existing: "orders", bindings: 2}`:                              "cell.topology.bindings: queues of topology.existing",
		`broker: "b", topology: {existing: "orders", churn: rate: 1}`:                           "cell.topology.churn: queues of topology.existing",
		`broker: "b", topology: {existing: "orders", queueNode: 1}`:                             "cell.topology.queueNode: queues of topology.existing",
		`broker: "b", retry: {on: ["run", "agent-lost"], max: 1}, topology: existing: "orders"`: `cell.retry.on: "agent-lost"`,
		`broker: "b", search: while: "p99 < 1s", topology: existing: "orders"`:                  "cell.search: a trial would receive",
		`broker: "b", topology: existing: "lockstep-1"`:                                         "which cleanup removes",
		`broker: "b", consumers: nack: 0.1, topology: existing: "orders"`:                       "cell.consumers.nack: messages of other programs",
		`broker: "b", groups: {x: topology: existing: "orders", y: {}}`:                         "groups.x.topology.existing: groups run at the same time",
	} {
		if got := faultsText(t, head+`cell: {`+text+`}`, Narrow{}); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", text, got, want)
		}
	}
}
