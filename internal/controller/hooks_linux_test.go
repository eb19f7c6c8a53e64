package controller

import (
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/test/process"
)

func TestHooksHaveNoAmbientCapabilities(t *testing.T) {
	if !process.WithAmbient(t) {
		return
	}
	printed, err := runHook(t.Context(), []string{"grep", "CapAmb", "/proc/self/status"}, schedule.Notice{}, nil)
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(printed)), "\t0000000000000000") {
		t.Errorf("ambient capabilities of a hook: got %q, error %v, want none", printed, err)
	}
}
