package plan

import (
	"slices"
	"testing"
)

// A note that applies to a hundred cells is printed once.
func TestNotesAreListedOnce(t *testing.T) {
	cell := func(broker, threads string, notes ...string) Cell {
		return Cell{Broker: Broker{Name: broker}, Notes: notes,
			Coordinates: []Coordinate{{"broker", []byte(`"` + broker + `"`)}, {"threads", []byte(threads)}}}
	}
	got := Run{Cells: []Cell{cell("a", "1", "x", "y"), cell("a", "2", "x"), cell("b", "1"), cell("b", "2", "x"),
		cell("b", "3", "x")}}.Notes()
	want := []string{"broker=a: x", "broker=a threads=1: y", "broker=b threads=2 and 1 more of broker=b: x"}
	if !slices.Equal(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
}
