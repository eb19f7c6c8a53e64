package agent

import (
	"os"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/test/process"
)

// TestStartedTargetsHaveNoCapabilities proves that a guard that starts a target has none of the agent's ambient
// capabilities, and that one that sends a signal or changes the network has them.
func TestStartedTargetsHaveNoCapabilities(t *testing.T) {
	if !process.WithAmbient(t) {
		return
	}
	for pid, want := range map[int]string{0: "0000000000000020", 1 << 30: "0000000000000000"} { // no process has the second
		file := t.TempDir() + "/capabilities"
		g, err := newGuard(pid, []string{"/bin/sh", "-c", "grep CapAmb /proc/self/status >" + file})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-g.fire(); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(file)
		if got := strings.TrimSpace(strings.TrimPrefix(string(text), "CapAmb:")); err != nil || got != want {
			t.Errorf("capabilities of a guard for process %d: got %q, error %v, want %q", pid, got, err, want)
		}
	}
}
