package cli

import (
	"os"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/matrix"
)

// The broker of nightly.cue is in the memory of an agent. Scheduling it prints the requirement for the fleet, unless a
// server is set.
func TestAScheduleOfABrokerInMemorySaysWhatItNeeds(t *testing.T) {
	const file = "../../matrices/nightly.cue"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, run, err := expandText(t.Context(), file, text, matrix.Narrow{})
	if err != nil {
		t.Fatal(err)
	}
	if said := inMemory(run); !strings.Contains(said, "broker nightly") || !strings.Contains(said, "agent --slots 2") {
		t.Errorf("it says %q", said)
	}
	text = []byte(strings.Replace(string(text), "embedded: true", `urls: ["nats://broker-1:4222"]`, 1))
	if _, run, err = expandText(t.Context(), file, text, matrix.Narrow{}); err != nil {
		t.Fatal(err)
	}
	if said := inMemory(run); said != "" {
		t.Errorf("of a server it says %q", said)
	}
}
