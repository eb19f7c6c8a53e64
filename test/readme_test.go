package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every command of the README works. Commands of ctl are run here, those of the fleet in TestReadmeFleet. An unknown
// command fails the test: add it to the README's cases here.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	runs := t.TempDir()
	for _, m := range regexp.MustCompile("(?m)(?:^|`)((?:go run|make|ctl|controller|agent) [^`#\n]*)").FindAllStringSubmatch(string(text), -1) {
		command := strings.TrimSpace(m[1])
		args, isCtl := strings.CutPrefix(command, "go run ./cmd/ctl ")
		switch {
		case command == "make test", command == "ctl run": // this test run, and a mention
			continue
		case command == "go run ./cmd/ctl run matrices/quick.cue": // TestMatrixQuick
			continue
		case strings.HasPrefix(command, "controller --"), strings.HasPrefix(command, "agent --"),
			strings.HasPrefix(command, "ctl run --server"):
			continue // TestReadmeFleet
		case fleetCommands[command]:
			continue // the script runs
		case command == "go run ./test/lab up all", command == "go run ./cmd/ctl run --quick matrices/full.cue":
			continue // the lab of this test run, and TestMatrixFull
		case !isCtl:
			t.Errorf("README shows %q, which is not run by a test", command)
			continue
		}
		fields := strings.Fields(args)
		if slices.Contains([]string{"run", "show", "history", "runs"}, fields[0]) {
			fields = append(fields, "--runs", runs)
		}
		cmd := exec.Command(filepath.Join(programs, "ctl"), fields...)
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		ran++
	}
	if ran < 6 {
		t.Errorf("only %d commands of the README were run", ran)
	}
}

// fleetCommands are run by the scripts "runs" and "fleet".
var fleetCommands = map[string]bool{"ctl run --detach": true, "ctl runs attach": true, "ctl runs cancel": true, "ctl runs pull": true,
	"ctl runs list": true, "ctl fleet agents": true, "ctl context add": true, "ctl context use": true}

// The fleet's commands work, with a free port and a matrix for the test's broker.
func TestReadmeFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "load-1", "load-2")
	ctl := f.run(`
axes: mode: ["confirm-window"]
cell: {axis: _, publishers: {mode: axis.mode, count: 100, persistent: false}, warmup: "0s"}
`)
	if code := ctl.Leaves(); code != 0 {
		t.Errorf("left with %d, want 0", code)
	}
}
