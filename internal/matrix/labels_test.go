package matrix

import (
	"maps"
	"testing"
)

// TestLabels: labels enter the ids of cells, so that their texts stay as they are.
func TestLabels(t *testing.T) {
	run := expand(t, `name: "x", brokers: b: driver: "fake", cell: labels: {size: 1_000_000, share: 0.0000125, big: 1e21, up: true, text: "t"}`, Narrow{})
	want := map[string]string{"size": "1000000", "share": "0.0000125", "big": "1000000000000000000000", "up": "true", "text": "t"}
	if got := run.Cells[0].Workload.Labels; !maps.Equal(got, want) {
		t.Errorf("the labels are %v, want %v", got, want)
	}
}
