package sink

import (
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
