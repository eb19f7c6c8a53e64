package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/cli"
	"example.org/lockstep/lockstep/test/process"
)

// TestConfirmationOnATerminal proves that a foreign record is used only after the answer "yes".
func TestConfirmationOnATerminal(t *testing.T) {
	t.Setenv("CANARY", "canary-secret")
	key := filepath.Join(t.TempDir(), "private.key")
	if err := os.WriteFile(key, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	for typed, yes := range map[string]bool{"n\n": false, "\n": false, "yellow\n": false, "y\n": true} {
		address, dialled := listener(t)
		folder := t.TempDir()
		r := foreign(t, folder, foreignMatrix(address, key, "/nowhere"), nil)
		var out bytes.Buffer
		code := cli.Ctl(t.Context(), []string{"runs", "cleanup", "--runs", folder, r.ID}, terminal(t, typed), &out, &out)
		if !strings.Contains(out.String(), "Use all of these? [y/N]") || (dialled.Load() > 0) != yes || !yes &&
			(code != cli.ExitBadMatrix || !strings.Contains(out.String(), "nothing opened")) {
			t.Errorf("%q: exit code %d after %d connections:\n%s", typed, code, dialled.Load(), &out)
		}
	}
}

// terminal returns a terminal with typed input.
func terminal(t *testing.T, typed string) *os.File {
	t.Helper()
	terminal, master := process.Terminal(t)
	if _, err := master.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	return terminal
}
