package sink

import (
	"maps"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// groupedWorld is a task of two groups: an unconfirmed one on the first two agents, and a confirmed one on the others.
func groupedWorld() *world {
	x := newWorld(func(c *plan.Cell) {
		d := plan.Default()
		bulk := plan.Group{Name: "bulk", Publishers: d.Publishers, Consumers: d.Consumers, Topology: d.Topology,
			Message: d.Message}
		small := bulk
		bulk.Publishers.Mode, small.Name, small.Label = "fire-and-forget", "small", "on disk"
		c.Workload.Groups = []plan.Group{bulk, small}
	})
	x.steady(3 * time.Second)
	return x
}

func TestPointsOfGroups(t *testing.T) {
	x := groupedWorld()
	seen := map[string]int{}
	for _, p := range x.stream() {
		switch p.Measurement {
		case measureWindow:
			want, mode := "bulk", "fire-and-forget"
			if agent := p.Tags["agent"]; agent == "a3" || agent == "a4" {
				want, mode = "small", "confirm-window"
			}
			if p.Tags["group"] != want || p.Tags["mode"] != mode {
				t.Fatalf("%v: want group %s in mode %s", p.Tags, want, mode)
			}
		case measureGroup:
			if p.Fields["publish.rate"] == nil || p.Tags["verdict"] == "" || p.Tags["group"] == "" {
				t.Errorf("%v %v", p.Tags, p.Fields)
			}
		default:
			if p.Tags["group"] != "" {
				t.Errorf("%s is of group %s", p.Measurement, p.Tags["group"])
			}
			if mode := p.Tags["mode"]; mode != several && p.Tags["cell"] != "" {
				t.Errorf("%s of the whole task is in mode %s", p.Measurement, mode)
			}
		}
		seen[p.Measurement]++
	}
	if seen[measureGroup] != 2 || seen[measureWindow] == 0 || seen[measureTotal] == 0 || seen[measureOutcome] != 1 {
		t.Errorf("points: %v", seen)
	}
}

// A value of which only a lower bound is known has no number, which a dashboard would take as exact.
func TestLowerBoundsAreNotNumbers(t *testing.T) {
	fields := valueFields(map[string]plan.Value{"e2e.p50": {Number: 0.001, Bound: 0.002},
		"e2e.p99": {Number: 30, Over: 12}, "lost": {NA: "undrained"}})
	want := map[string]any{"e2e.p50": 0.001, "e2e.p50.bound": 0.002, "e2e.p99.over": 30.0}
	if !maps.Equal(fields, want) {
		t.Errorf("fields: got %v, want %v", fields, want)
	}
}

// Side-by-side brokers are described in the results of their groups, and not in that of the cell.
func TestSideBySideBrokersAreDescribed(t *testing.T) {
	x := groupedWorld()
	o := x.outcome()
	o.Groups[0].Subject = &plan.Subject{Product: "NATS", Version: "2.11"}
	task := newStream(x.run).newTask(x.start())
	task.tags["broker"] = several
	if p := task.outcome(o); p.Fields["product"] != nil || p.Fields["version"] != nil {
		t.Errorf("result of the cell: got broker %v %v, want none", p.Fields["product"], p.Fields["version"])
	}
	if p := task.groupOutcomes(o)[0]; p.Fields["product"] != "NATS" || p.Fields["version"] != "2.11" {
		t.Errorf("result of the group: got broker %v %v, want NATS 2.11", p.Fields["product"], p.Fields["version"])
	}
}
