package matrix

import (
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestInflux proves that the target of points belongs to the run, and does not affect the ids of cells.
func TestInflux(t *testing.T) {
	without := expand(t, study, Narrow{})
	if without.Influx != nil {
		t.Errorf("a matrix without influx has %+v", without.Influx)
	}
	text := study + `influx: {url: "${env:INFLUX_URL}", bucket: "lockstep", token: "${env:INFLUX_TOKEN}"}` + "\n"
	run := expand(t, text, Narrow{Set: []string{`influx.org="bench"`}})
	want := plan.Influx{URL: "${env:INFLUX_URL}", Org: "bench", Bucket: "lockstep", Token: "${env:INFLUX_TOKEN}"}
	if run.Influx == nil || *run.Influx != want {
		t.Errorf("got %+v, want %+v: references are filled in where points are written, not here", run.Influx, want)
	}
	if a, b := without.Cells[0].ID, run.Cells[0].ID; a != b {
		t.Errorf("the cell's id changed from %s to %s", a, b)
	}
}
