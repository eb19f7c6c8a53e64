package matrix

import (
	"strings"
	"testing"
)

func TestPlacement(t *testing.T) {
	run := expand(t, head+`axes: {broker: ["b"], zone: ["a", "b"]}
		cell: {
			axis: _
			publishers: on: {zone: axis.zone, disk: "ssd"}
			groups: far: publishers: on: zone: "c"
			groups: near: consumers: {on: {}, nodes: 2}
		}`, Narrow{})
	far, near := run.Cells[0].Workload.Groups[0], run.Cells[0].Workload.Groups[1]
	if got := far.Publishers.On.String(); got != "disk=ssd zone=c" {
		t.Errorf("a group's own demands, and the cell's: %q", got)
	}
	if got := near.Publishers.On.String(); got != "disk=ssd zone=a" || near.Consumers.On != nil {
		t.Errorf("publishers on %q, consumers on %v", got, near.Consumers.On)
	}
	if run.Cells[0].ID == run.Cells[1].ID {
		t.Error("where a cell runs does not enter its id")
	}
	plain := expand(t, head+`axes: broker: ["b"]`, Narrow{}).Cells[0]
	none := expand(t, head+`axes: broker: ["b"], cell: {publishers: on: {}, consumers: on: {}}`, Narrow{}).Cells[0]
	if plain.ID != none.ID || none.Workload.Publishers.On != nil {
		t.Errorf("no demands give id %s, and %s where they are written out", plain.ID, none.ID)
	}
}

func TestErrorsOfPlacement(t *testing.T) {
	for text, want := range map[string]string{
		`publishers: on: zone: "a b"`: "publishers.on.zone",
		`publishers: on: zone: 1`:     "publishers.on.zone",
		`publishers: on: "a"`:         "publishers.on",
		`publishers: on: "z/z": "a"`:  `"z/z" is no valid label`,
		`publishers: on: zone: "a", consumers: {colocate: true, on: zone: "b"}`: `zone is "b", and "a" in publishers.on: with consumers.colocate an agent needs both`,
	} {
		if got := errorsText(t, head+`cell: {broker: "b", `+text+`}`, Narrow{}); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", text, got, want)
		}
	}
}

func TestLabel(t *testing.T) {
	for name, value := range map[string]string{"": "a", "zone": "", "a b": "c", "a": "b,c", "-a": "b"} {
		if Label(name, value) == nil {
			t.Errorf("%q=%q was taken", name, value)
		}
	}
	if err := Label("zone.eu-1", "a_b"); err != nil {
		t.Error(err)
	}
}
