package matrix

import (
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

const contest = `package m
name: "contest"
brokers: {"rabbit-q": {driver: "fake", options: url: "fake://u:p@h:1/"}, kafka: {driver: "fake"}, third: {driver: "fake"}}
`

// TestSideBySide proves that each side-by-side broker has the whole cell with its own agents, and that tables use the
// brokers' names for the groups.
func TestSideBySide(t *testing.T) {
	run := expand(t, contest+`axes: rate: [100, 200]
cell: {axis: _, publishers: {rate: axis.rate, threads: 3}, sideBySide: ["rabbit-q", "kafka"]}
tables: [{rows: ["rate"], columns: ["group"], values: ["publish.rate"]}, {rows: ["rate"], values: ["rabbitq/publish.p99", "kafka/publish.p99"]}]`, Narrow{})
	if len(run.Cells) != 2 || run.Agents != 4 {
		t.Fatalf("%d cells and %d agents, want 2 and 4", len(run.Cells), run.Agents)
	}
	c := run.Cells[1]
	var groups, brokers []string
	for _, part := range (plan.Task{Cell: c}).Parts() {
		groups, brokers = append(groups, part.Group), append(brokers, part.Cell.Broker.Name)
		if p := part.Cell.Workload.Publishers; p.Rate != 200 || p.Threads != 3 {
			t.Errorf("side-by-side broker %s publishes %+v", part.Group, p)
		}
	}
	if !slices.Equal(groups, []string{"kafka", "rabbitq"}) || !slices.Equal(brokers, []string{"kafka", "rabbit-q"}) {
		t.Errorf("groups %q with brokers %q", groups, brokers)
	}
	if len(c.Brokers()) != 2 || !c.Workload.SideBySide() {
		t.Errorf("brokers %+v", c.Brokers())
	}
}

// TestBrokersOfGroups proves that a group without a broker has that of the cell, and that only the names of the
// side-by-side brokers are part of the id.
func TestBrokersOfGroups(t *testing.T) {
	one := func(cell string) plan.Cell {
		t.Helper()
		run := expand(t, contest+cell, Narrow{})
		if len(run.Cells) != 1 {
			t.Fatalf("%d cells", len(run.Cells))
		}
		return run.Cells[0]
	}
	c := one(`cell: {broker: "third", groups: {a: {}, b: broker: "kafka"}}`)
	parts := (plan.Task{Cell: c}).Parts()
	if a, b := parts[0].Cell.Broker.Name, parts[1].Cell.Broker.Name; a != "third" || b != "kafka" {
		t.Errorf("brokers %s and %s", a, b)
	}
	other := one(`cell: {broker: "third", groups: {a: {}, b: broker: "rabbit-q"}}`)
	if c.ID == other.ID {
		t.Error("which brokers are side by side does not enter the cell's id")
	}
	redacted := plan.Run{Cells: []plan.Cell{other}}.Redacted().Cells[0]
	if text := string(redacted.Workload.Groups[1].Broker.Options); strings.Contains(text, "u:p@") {
		t.Errorf("a password is left in the options of a side-by-side broker: %s", text)
	}
	if text := string(other.Workload.Groups[1].Broker.Options); !strings.Contains(text, "u:p@") {
		t.Errorf("redacting a run changed the run itself: %s", text)
	}
}

func TestErrorsOfSideBySide(t *testing.T) {
	var out []string
	for _, text := range []string{
		`cell: sideBySide: ["kafka", "kafak"]`,
		`cell: sideBySide: ["kafka"]`,
		`cell: sideBySide: ["kafka", "kafka"]`,
		`cell: {sideBySide: ["kafka", "third"], groups: x: {}}`,
		`cell: groups: {x: broker: "no", y: broker: "kafka"}`,
		`cell: groups: {x: {}, y: broker: "kafka"}`,
		`cell: sideBySide: ["kafka", "third"]
tables: [{rows: ["group"], values: ["rabbit/publish.rate"]}]`,
	} {
		out = append(out, errorsText(t, contest+text, Narrow{}))
	}
	golden(t, "sidebyside.golden", strings.Join(out, "\n\n")+"\n")
}
