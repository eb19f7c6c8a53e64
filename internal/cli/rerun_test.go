package cli

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/bundle"
)

// A foreign bundle names files that agents read. The commands that ctl prints quote them for a shell.
func TestCommandsForForeignFilesAreQuoted(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	evil := "/nowhere/x; touch " + ran + "; echo it"
	r := rerun{path: "a b.zip", manifest: bundle.Manifest{Read: []bundle.Read{{Path: evil,
		Name: "files/1/x$(touch " + ran + ")"}}}}
	var all []string
	err := r.payloads(true, &all)
	if err == nil {
		t.Fatal("a file that is not here is not missed")
	}
	_, command, _ := strings.Cut(err.Error(), "\n  ")
	if !strings.Contains(command, "unzip -p ") {
		t.Fatalf("the error has no command: %v", err)
	}
	// /nowhere cannot be written
	out, err := exec.CommandContext(context.Background(), "sh", "-c",
		"mkdir() { :; }; unzip() { :; }; "+command).CombinedOutput()
	t.Logf("%v: %s", err, out)
	if digest, err := digestOf(ran); err == nil {
		t.Errorf("the command ran what is in a name: %s (%s)", command, digest)
	}
}

// Files that are not regular, and may never end, are not read.
func TestOnlyRegularForeignFilesAreRead(t *testing.T) {
	r := rerun{manifest: bundle.Manifest{Read: []bundle.Read{{Path: "/dev/zero", Name: "files/1/zero"}}}}
	var all []string
	if err := r.payloads(true, &all); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}

// A filter of ctl bundle rerun reduces the cells of the bundle.
func TestFiltersOfARerun(t *testing.T) {
	bundle := []string{"mode=confirm-each,fire-and-forget", "threads=1", "threads=5"}
	for more, want := range map[string]string{
		"":                                     "mode=confirm-each,fire-and-forget threads=1 threads=5",
		"mode=confirm-each":                    "mode=confirm-each threads=1 threads=5",
		"threads=5":                            "threads=5 mode=confirm-each,fire-and-forget",
		"mode = fire-and-forget, confirm-each": "mode = fire-and-forget, confirm-each threads=1 threads=5",
		"broker=rabbit":                        "broker=rabbit mode=confirm-each,fire-and-forget threads=1 threads=5",
		"mode=confirm-window": `--filter mode=confirm-window: the bundle has no cells with "confirm-window" ` +
			`(confirm-each, fire-and-forget); choose values of the bundle`,
	} {
		var add []string
		if more != "" {
			add = []string{more}
		}
		filters, err := within(bundle, add)
		got := strings.Join(filters, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("--filter %q: got %q, want %q", more, got, want)
		}
	}
}
