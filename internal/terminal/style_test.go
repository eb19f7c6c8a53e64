package terminal

import "testing"

func TestBar(t *testing.T) {
	t.Parallel()
	for part, want := range map[float64]string{-1: "────", 0: "────", 0.5: "██──", 0.6: "██▍─", 1: "████", 7: "████"} {
		if full, rest := Bar(part, 4); full+rest != want {
			t.Errorf("Bar(%v) = %q, want %q", part, full+rest, want)
		}
	}
}
