package matrix

import (
	"maps"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestLabels proves that labels are part of the ids of cells, so their texts must not change.
func TestLabels(t *testing.T) {
	run := expand(t,
		`name: "x", brokers: b: driver: "fake", cell: labels: {size: 1_000_000, share: 0.0000125, big: 1e21, up: true, text: "t"}`, Narrow{})
	want := map[string]string{"size": "1000000", "share": "0.0000125", "big": "1000000000000000000000", "up": "true",
		"text": "t"}
	if got := run.Cells[0].Workload.Labels; !maps.Equal(got, want) {
		t.Errorf("the labels are %v, want %v", got, want)
	}
}

// TestLabelsOfDefaults proves that a default in a label has the same text as in a plan.
func TestLabelsOfDefaults(t *testing.T) {
	run := expand(t,
		`name: "x", brokers: b: driver: "fake", cell: {interval: _, measure: _, labels: {i: interval, m: measure}}`,
		Narrow{})
	want := map[string]string{"i": plan.Default().Interval.String(), "m": plan.Default().Measure.String()}
	if got := run.Cells[0].Workload.Labels; !maps.Equal(got, want) || want["i"] != "1m0s" {
		t.Errorf("the labels are %v, want %v", got, want)
	}
}
