package cli

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"lockstep/internal/bundle"
)

// A bundle of a stranger names files that agents read: the commands that it makes ctl print are one word a name, to a
// shell as well.
func TestCommandsForAStrangersFilesAreQuoted(t *testing.T) {
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
	// it cannot write to /nowhere
	out, err := exec.CommandContext(context.Background(), "sh", "-c",
		"mkdir() { :; }; unzip() { :; }; "+command).CombinedOutput()
	t.Logf("%v: %s", err, out)
	if digest, err := digestOf(ran); err == nil {
		t.Errorf("the command ran what is in a name: %s (%s)", command, digest)
	}
}

// What never ends is not read.
func TestOnlyRegularFilesOfAStrangerAreRead(t *testing.T) {
	r := rerun{manifest: bundle.Manifest{Read: []bundle.Read{{Path: "/dev/zero", Name: "files/1/zero"}}}}
	var all []string
	if err := r.payloads(true, &all); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("it says %v", err)
	}
}
