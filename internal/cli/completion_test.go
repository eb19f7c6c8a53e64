package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/cli"
)

// The shell completes metrics, formats, and axes with their values, of a matrix and of a run.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "m.cue"), filepath.Join(dir, "runs")
	const matrix = `package m
name: "m"
brokers: loop: driver: "loopback"
axes: {mode: ["confirm-each", "confirm-window"], threads: [1, 2]}
cell: {publishers: count: 1, warmup: "0s", skew: "1m"}
`
	if err := os.WriteFile(file, []byte(matrix), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := ctl(t, "run", "--runs", folder, file); code != cli.ExitOK {
		t.Fatalf("run: exit code %d: %s", code, text)
	}
	for _, x := range []struct{ command, want string }{
		{"plan " + file + " --filter ", "mode= threads= :6"},
		{"plan " + file + " --filter mode=", "mode=confirm-each mode=confirm-window :4"},
		{"plan missing.cue --filter ", ":6"},
		{"compare --runs " + folder + " latest --by ", "mode threads :4"},
		{"compare --runs " + folder + " latest --filter threads=", "threads=1 threads=2 :4"},
		{"compare latest --metric publish.p9", "publish.p90 publish.p95 publish.p99 publish.p99.9 publish.p95.highest publish.p99.highest :4"},
		{"show -o ", "text md csv json html parquet gobench omb :4"},
		{"init nat", "nats :4"},
	} {
		_, text := ctl(t, append([]string{"__complete"}, strings.Split(x.command, " ")...)...)
		text, _, _ = strings.Cut(text, "Completion ended")
		if got := strings.Join(strings.Fields(text), " "); got != x.want {
			t.Errorf("%s: %q, want %q", x.command, got, x.want)
		}
	}
}
