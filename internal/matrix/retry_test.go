package matrix

import (
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

const retrying = `
name: "retries"
brokers: a: {driver: "fake", options: {}}
axes: threads: [1, 2]
cell: {
	axis: _
	retry: {on: [ON], max: axis.threads}
}
tables: [{rows: ["threads"], values: ["publish.rate"]}]
`

// A retry policy belongs to the cell, may depend on the combination, and does not affect the id.
func TestRetryIsNoPartOfTheWorkload(t *testing.T) {
	with := expand(t, strings.Replace(retrying, "ON", `"agent-lost", "skewed"`, 1), Narrow{}).Cells
	without := expand(t, strings.Replace(retrying, "retry: {on: [ON], max: axis.threads}", "", 1), Narrow{}).Cells
	if len(with) != 2 || len(without) != 2 {
		t.Fatalf("%d and %d cells", len(with), len(without))
	}
	for i, c := range with {
		if c.ID != without[i].ID {
			t.Errorf("cell %d has id %s with retries and %s without", i, c.ID, without[i].ID)
		}
		if r := c.Retry; r == nil || r.Max != i+1 ||
			!slices.Equal(r.On, []plan.FailureKind{plan.FailedAgentLost, plan.FailedSkewed}) {
			t.Errorf("cell %d has the policy %+v", i, r)
		}
		if without[i].Retry != nil {
			t.Errorf("a cell that says nothing has the policy %+v", without[i].Retry)
		}
	}
}

// Every kind of failure can be listed, once. An empty list is an error.
func TestRetryKinds(t *testing.T) {
	var all []string
	for _, k := range plan.RetryKinds() {
		all = append(all, `"`+string(k)+`"`)
	}
	list := strings.Join(all, ", ")
	expand(t, strings.Replace(retrying, "ON", list, 1), Narrow{})
	for on, want := range map[string]string{"": "cell.retry.on: it is empty; give at least one of " + list,
		`"run", "connect", "run"`: `"run" is duplicated; remove one`} {
		if text := errorsText(t, strings.Replace(retrying, "ON", on, 1), Narrow{}); !strings.Contains(text, want) {
			t.Errorf("on: [%s]: %q, want %q", on, text, want)
		}
	}
}
