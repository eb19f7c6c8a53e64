package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/cli"
	"example.org/lockstep/lockstep/internal/plan"
)

// The matrix that init writes is valid: each of its publish modes runs or is n/a, and at least two run.
func TestInitWritesAValidMatrix(t *testing.T) {
	for _, name := range []string{"loopback", "nats"} { // the script init.txtar has the other drivers
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "m.cue")
			if code, text := ctl(t, "init", name, "-f", file); code != cli.ExitOK {
				t.Fatalf("init: exit code %d: %s", code, text)
			}
			if code, text := ctl(t, "vet", file); code != cli.ExitOK {
				t.Fatalf("vet: exit code %d: %s", code, text)
			}
			code, text := ctl(t, "plan", "-o", "json", file)
			var run plan.Run
			if err := json.Unmarshal([]byte(text), &run); err != nil || code != cli.ExitOK {
				t.Fatalf("plan: exit code %d: %v\n%s", code, err, text)
			}
			modes := map[string]bool{}
			for _, c := range run.Cells {
				mode, _ := c.Coordinate("mode")
				modes[mode] = true
			}
			if len(modes) < 2 || len(run.Cells) != 4*len(modes) || len(run.Cells)+len(run.Excluded) != 12 || run.Repeat != 3 {
				t.Errorf("%d cells of the modes %v, %d excluded, %d repetitions", len(run.Cells), modes, len(run.Excluded), run.Repeat)
			}
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code, text = ctl(t, "init", name, "-f", file)
			after, err := os.ReadFile(file)
			if code != cli.ExitError || !strings.Contains(text, "already exists") || err != nil || string(after) != string(before) {
				t.Errorf("a second init: exit code %d: %s, %v", code, text, err)
			}
		})
	}
}

func TestInitSuggestsADriver(t *testing.T) {
	if code, text := ctl(t, "init", "loopbak"); code != cli.ExitBadMatrix || !strings.Contains(text, `did you mean "loopback"?`) {
		t.Errorf("init: exit code %d: %s", code, text)
	}
}
