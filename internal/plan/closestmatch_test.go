package plan

import "testing"

func TestClosestMatch(t *testing.T) {
	names := []string{"window", "nodes", "node", "confirm-each"}
	for in, want := range map[string]string{"windw": "window", "wnidow": "window", "Nodes": "nodes",
		"confirm-eech": "confirm-each", "zebra": "", "": ""} {
		if got := ClosestMatch(in, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", in, got, want)
		}
	}
}
