package matrix

import (
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestGroups proves the precedence of values: the group, then the cell with axes by name, then the default. An axis can
// set a field of a group.
func TestGroups(t *testing.T) {
	run := expand(t, head+`axes: {broker: ["b"], threads: [3], rate: [0, 500]}
		cell: {
			axis: _
			publishers: {maxInFlight: 50, batch: 7}
			consumers: prefetch: 20
			groups: bulk: {publishers: {rate: axis.rate, threads: 1, batch: {min: 1, max: 2}}, message: size: [{size: 1000}, {size: 9000, weight: 3}]}
			groups: small: {publishers: mode: "confirm-each", consumers: {nodes: 0}}
		}`, Narrow{})
	if len(run.Cells) != 2 || run.Agents != 3 {
		t.Fatalf("%d cells and %d agents, want 2 and 2 of bulk with 1 of small", len(run.Cells), run.Agents)
	}
	w := run.Cells[1].Workload
	if d := plan.Default(); w.Publishers.Threads != d.Publishers.Threads ||
		w.Publishers.MaxInFlight != d.Publishers.MaxInFlight {
		t.Errorf("the cell keeps publishers %+v, which nothing is done with", w.Publishers)
	}
	if len(w.Groups) != 2 || w.Groups[0].Name != "bulk" || w.Groups[1].Name != "small" {
		t.Fatalf("groups %+v", w.Groups)
	}
	bulk, small := w.Groups[0], w.Groups[1]
	if p := bulk.Publishers; p.Rate != 500 || p.Threads != 1 || p.MaxInFlight != 50 || p.Mode != "confirm-window" ||
		p.Batch != (plan.Batch{Min: 1, Max: 2}) {
		t.Errorf("publishers of bulk: %+v", p)
	}
	if bulk.Consumers.Threads != 3 || bulk.Consumers.Prefetch != 20 || bulk.Message.Size != 9000 ||
		len(bulk.Message.Sizes) != 2 {
		t.Errorf("bulk: %+v", bulk)
	}
	if p := small.Publishers; p.Rate != 0 || p.Threads != 3 || p.Mode != "confirm-each" || p.Batch.Min != 7 ||
		small.Consumers.Nodes != 0 || small.Message.Size != 100 {
		t.Errorf("small: %+v", small)
	}
	if bulk.Label == "" || run.Cells[0].ID == run.Cells[1].ID {
		t.Errorf("label %q, ids %s and %s", bulk.Label, run.Cells[0].ID, run.Cells[1].ID)
	}
}

// TestReferencesOfGroups proves that a group inherits fields that it refers to and does not set: from the cell, from an
// axis by name, or from the schema's default.
func TestReferencesOfGroups(t *testing.T) {
	run := expand(t, head+`axes: {broker: ["b"], threads: [3]}
		cell: {
			publishers: {maxInFlight: 50, count: 7}
			groups: x: {publishers: {rate: _, count: _}, consumers: prefetch: publishers.count + publishers.rate, message: _, topology: queues: message.size - 99}
			groups: y: {publishers: _, consumers: _, consumers: prefetch: publishers.maxInFlight + publishers.threads + consumers.batch}
			groups: z: {}
		}`, Narrow{})
	w := run.Cells[0].Workload
	x, y, z := w.Groups[0], w.Groups[1], w.Groups[2]
	if x.Consumers.Prefetch != 7 || x.Topology.Queues != 1 || y.Consumers.Prefetch != 50+3+100 {
		t.Errorf("prefetch of x %d, queues of x %d, prefetch of y %d", x.Consumers.Prefetch, x.Topology.Queues,
			y.Consumers.Prefetch)
	}
	for _, g := range []plan.Group{x, y, z} {
		if p := g.Publishers; p.MaxInFlight != 50 || p.Threads != 3 || p.Count != 7 || g.Consumers.Threads != 3 {
			t.Errorf("%s: publishers %+v, consumers %+v", g.Name, p, g.Consumers)
		}
	}
}

// TestAxisThatNoGroupUses proves that an axis by name has no effect if every group sets the field.
func TestAxisThatNoGroupUses(t *testing.T) {
	got := errorsText(t, head+`axes: {broker: ["b"], mode: ["confirm-each", "confirm-window"]}
		cell: groups: {x: publishers: mode: "confirm-each", y: publishers: mode: "confirm-each"}`, Narrow{})
	if !strings.Contains(got, "axis mode does not affect the cell") {
		t.Error(got)
	}
}

func TestErrorsOfGroups(t *testing.T) {
	var out []string
	for _, text := range []string{
		`cell: {broker: "b", groups: {"a/b": {}, averyverylongname: {}, ok: {}}}`,
		`cell: {broker: "b", groups: {x: publisher: rate: 5, y: publishers: {rat: 5, threads: 0}}}`,
		`cell: {broker: "b", topology: queues: 5, drain: idle: "2m", groups: {x: consumers: threads: 5, y: {}}}`,
		`cell: {broker: "b", groups: {x: {publishers: batch: {min: 9, max: 3}}, y: {}}}`,
		`cell: {broker: "b", search: while: "lost == 0", groups: x: {}}`,
	} {
		out = append(out, errorsText(t, head+text, Narrow{}))
	}
	golden(t, "groups.golden", strings.Join(out, "\n\n")+"\n")
}

func TestGroupThatTheBrokerDoesNotSupport(t *testing.T) {
	run := expand(t, head+`axes: broker: ["b", "s"]
		cell: {
			publishers: {mode: "fire-and-forget", persistent: false}
			consumers: ack: "automatic"
			groups: {x: {}, y: publishers: mode: "confirm-each"}
		}`, Narrow{})
	var all []string
	for _, x := range run.Excluded {
		all = append(all, x.Kind+": "+x.Reason)
	}
	if len(run.Cells)+len(run.Excluded) != 2 || len(all) != 1 ||
		all[0] != "n/a: group y: simple with these options cannot publish confirm-each (it can: fire-and-forget)" {
		t.Errorf("%d cells, excluded: %q", len(run.Cells), all)
	}
}

func TestTablesOfGroups(t *testing.T) {
	groups := `axes: {broker: ["b"], rate: [0, 500]}
		cell: {axis: _, groups: {small: {}, if axis.rate > 0 {bulk: publishers: rate: axis.rate}}}
		`
	run := expand(t, head+groups, Narrow{})
	if rows := run.Tables[0].Rows; len(rows) == 0 || rows[len(rows)-1] != "group" {
		t.Errorf("without tables of its own a matrix with groups has rows %q, want the last to tell groups apart", rows)
	}
	run = expand(t, head+groups+`tables: [{rows: ["rate", "group"], values: ["publish.rate"], headings: {group: "Load", "small/publish.p99": "x"}},
		{rows: ["rate"], columns: ["group"], values: ["publish.rate"]}, {rows: ["rate"], values: ["bulk/publish.rate", "small/publish.p99"]}, {rows: [], highest: "small/publish.p99", values: ["sent"]}]`, Narrow{})
	if len(run.Tables) != 4 {
		t.Errorf("tables %+v", run.Tables)
	}
	var out []string
	for _, text := range []string{
		groups +
			`tables: [{rows: ["rate", "groop"], values: ["publish.rate", "bulkk/publish.rate"], highest: "smal/sent"}]`,
		`axes: broker: ["b"], tables: [{rows: ["group"], values: ["bulk/publish.rate"], headings: group: "G"}]`,
		`axes: {broker: ["b"], group: [1, 2]}, cell: {axis: _, groups: x: publishers: threads: axis.group}`,
	} {
		out = append(out, errorsText(t, head+text, Narrow{}))
	}
	if text := errorsText(t, head+groups+`tables: [{rows: ["rate", "group"], values: ["bulk/publish.rat"]}]`,
		Narrow{}); !strings.Contains(text, `unknown value "publish.rat"; did you mean "publish.rate"?`) {
		t.Error(text)
	}
	golden(t, "grouptables.golden", strings.Join(out, "\n\n")+"\n")
}

// TestLatencyOfGroups proves that a cell with several groups has no latency of its own, so no decision can depend on
// it.
func TestLatencyOfGroups(t *testing.T) {
	text := func(value string) string {
		return head + `cell: {broker: "b", groups: {bulk: {}, small: {}, none: publishers: mode: "fire-and-forget"}, require: "` + value + ` no worse than baseline by 5%"}
			repeat: {until: "ci(` + value + `) < 5%", max: 12}`
	}
	got := errorsText(t, text("publish.p99"), Narrow{})
	if n := strings.Count(got,
		`publish.p99 never has a number in this cell: each group has its own; name one: "bulk/publish.p99"`); n != 2 {
		t.Errorf("%d of 2 errors: %s", n, got)
	}
	for _, value := range []string{"bulk/publish.p99", "publish.rate", "consume.rate"} {
		expand(t, text(value), Narrow{}) // fails on an error
	}
	expand(t, head+`cell: {broker: "b", groups: {bulk: {}, none: publishers: mode: "fire-and-forget"}}
		repeat: {until: "ci(publish.p99) < 5%", max: 12}`, Narrow{}) // one group has it, and therefore the cell
}
