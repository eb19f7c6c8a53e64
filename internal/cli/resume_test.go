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

func TestResumeInTheFolderOfTheRun(t *testing.T) {
	dir := t.TempDir()
	file, folder, other := filepath.Join(dir, "once.cue"), filepath.Join(dir, "runs"), filepath.Join(dir, "other")
	if err := os.WriteFile(file, []byte(once), 0o600); err != nil {
		t.Fatal(err)
	}
	ctl := func(args ...string) (code int, output string) {
		var out bytes.Buffer
		code = cli.Ctl(t.Context(), args, strings.NewReader(""), &out, &out)
		return code, out.String()
	}
	if code, output := ctl("run", "--runs", folder, file); code != cli.ExitOK {
		t.Fatalf("exit code %d:\n%s", code, output)
	}
	running, err := runs.Open(folder, filepath.Join(folder, "latest"))
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Lock(); err != nil { // as the ctl that runs it
		t.Fatal(err)
	}
	if code, output := ctl("run", "--runs", folder, "--resume", "latest"); code != cli.ExitError ||
		!strings.Contains(output, "another process is running it; wait until it ends") {
		t.Errorf("resume of an active run: exit code %d, output %q", code, output)
	}
	running.Close()
	outcomes, err := filepath.Glob(filepath.Join(folder, "latest", "tasks", "*", "outcome.json"))
	if err != nil || len(outcomes) != 1 {
		t.Fatalf("outcomes %q, %v", outcomes, err)
	}
	if err := os.Remove(outcomes[0]); err != nil { // as if it had been interrupted before
		t.Fatal(err)
	}

	code, output := ctl("run", "--runs", other, "--resume", filepath.Join(folder, "latest"))
	if code != cli.ExitOK || !strings.Contains(output, "\n1 task: 1 valid") ||
		!strings.Contains(output, "record: "+folder) {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	if _, err := os.Stat(outcomes[0]); err != nil {
		t.Errorf("not resumed in its own folder: %v", err)
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("resumed in the folder of --runs")
	}

	// A complete run is not executed again, and its timeline does not change.
	timeline := filepath.Join(folder, "latest", "timeline.jsonl")
	before, err := os.ReadFile(timeline)
	if err != nil {
		t.Fatal(err)
	}
	code, output = ctl("run", "--runs", folder, "--resume", "latest")
	if code != cli.ExitOK || !strings.Contains(output, "nothing to run") ||
		!strings.Contains(output, "\n1 task: 1 valid") {
		t.Errorf("a complete run: exit code %d:\n%s", code, output)
	}
	if after, err := os.ReadFile(timeline); err != nil || !bytes.Equal(before, after) {
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
	code, output = ctl("run", "--resume", unpacked)
	if code != cli.ExitBadMatrix || !strings.Contains(output, "rename the folder") {
		t.Errorf("a folder of another name: exit code %d, output %q", code, output)
	}
}
