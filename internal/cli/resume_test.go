package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/cli"
	"example.org/lockstep/lockstep/internal/runs"
	_ "example.org/lockstep/lockstep/pkg/drivers/loopback"
)

const once = `package matrix
name: "once"
brokers: loop: driver: "loopback"
cell: {
	publishers: rate: 200
	warmup: "0s"
	measure: "400ms"
	drain: {idle: "2m", timeout: "2m"} // until all is in
}
`

func TestARunIsResumedWhereItIsAndByOneAlone(t *testing.T) {
	dir := t.TempDir()
	file, folder, other := filepath.Join(dir, "once.cue"), filepath.Join(dir, "runs"), filepath.Join(dir, "other")
	if err := os.WriteFile(file, []byte(once), 0o600); err != nil {
		t.Fatal(err)
	}
	ctl := func(args ...string) (code int, said string) {
		var out bytes.Buffer
		code = cli.Ctl(t.Context(), args, strings.NewReader(""), &out, &out)
		return code, out.String()
	}
	if code, said := ctl("run", "--runs", folder, file); code != cli.ExitOK {
		t.Fatalf("left with %d:\n%s", code, said)
	}
	running, err := runs.Open(folder, filepath.Join(folder, "latest"))
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Hold(); err != nil { // as the ctl that runs it
		t.Fatal(err)
	}
	if code, said := ctl("run", "--runs", folder, "--resume", "latest"); code != cli.ExitError ||
		!strings.Contains(said, "another process is running it; wait until it ends") {
		t.Errorf("a run that another ctl runs: left with %d and said %q", code, said)
	}
	running.Close()
	outcomes, err := filepath.Glob(filepath.Join(folder, "latest", "tasks", "*", "outcome.json"))
	if err != nil || len(outcomes) != 1 {
		t.Fatalf("outcomes %q, %v", outcomes, err)
	}
	if err := os.Remove(outcomes[0]); err != nil { // as if it had been interrupted before
		t.Fatal(err)
	}

	code, said := ctl("run", "--runs", other, "--resume", filepath.Join(folder, "latest"))
	if code != cli.ExitOK || !strings.Contains(said, "\n1 task: 1 valid") ||
		!strings.Contains(said, "record: "+folder) {
		t.Errorf("left with %d:\n%s", code, said)
	}
	if _, err := os.Stat(outcomes[0]); err != nil {
		t.Errorf("it did not go on where it is: %v", err)
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("it went on in the folder of --runs, where it is not")
	}

	// A complete run is not executed again, and its timeline does not change.
	marks := filepath.Join(folder, "latest", "timeline.jsonl")
	before, err := os.ReadFile(marks)
	if err != nil {
		t.Fatal(err)
	}
	code, said = ctl("run", "--runs", folder, "--resume", "latest")
	if code != cli.ExitOK || !strings.Contains(said, "nothing to run") ||
		!strings.Contains(said, "\n1 task: 1 valid") {
		t.Errorf("a complete run: left with %d:\n%s", code, said)
	}
	if after, err := os.ReadFile(marks); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a complete run was run: %v\n%s", err, after)
	}

	whole, err := filepath.EvalSymlinks(filepath.Join(folder, "latest"))
	if err != nil {
		t.Fatal(err)
	}
	unpacked := filepath.Join(dir, "run")
	if err := os.Rename(whole, unpacked); err != nil {
		t.Fatal(err)
	}
	code, said = ctl("run", "--resume", unpacked)
	if code != cli.ExitBadMatrix || !strings.Contains(said, "rename the folder") {
		t.Errorf("a folder of another name: left with %d and said %q", code, said)
	}
}
