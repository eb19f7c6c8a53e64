package wire

import (
	"slices"
	"testing"
)

// A draining agent is not counted as free or busy. Each state is listed.
func TestStatesOfAgents(t *testing.T) {
	for want, a := range map[string]AgentInfo{
		"free":     {},
		"busy":     {Heartbeat: Heartbeat{Busy: "t", Observer: true}},
		"observes": {Heartbeat: Heartbeat{Observer: true}},
		"leaves":   {Heartbeat: Heartbeat{Draining: true, Busy: "t"}},
		"refused":  {Heartbeat: Heartbeat{Draining: true}, Refused: "two agents have this name"},
	} {
		if got := a.State(); got != want || !slices.Contains(AgentStates(), got) {
			t.Errorf("the state of %+v is %q, want %q", a, got, want)
		}
	}
}
