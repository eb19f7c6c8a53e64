package cli

import (
	"os"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/matrix"
)

// The broker of nightly.cue is in the memory of an agent. Scheduling it prints the requirement for the fleet, unless a
// server is set.
func TestAdviceForBrokersInMemory(t *testing.T) {
	const file = "../../matrices/nightly.cue"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, run, err := expandText(t.Context(), file, text, matrix.Narrow{})
	if err != nil {
		t.Fatal(err)
	}
	if output := inMemory(run); !strings.Contains(output, "broker nightly") || !strings.Contains(output, "agent --slots 2") {
		t.Errorf("got %q", output)
	}
	text = []byte(strings.Replace(string(text), "embedded: true", `urls: ["nats://broker-1:4222"]`, 1))
	if _, run, err = expandText(t.Context(), file, text, matrix.Narrow{}); err != nil {
		t.Fatal(err)
	}
	if output := inMemory(run); output != "" {
		t.Errorf("with a server: got %q", output)
	}
}
