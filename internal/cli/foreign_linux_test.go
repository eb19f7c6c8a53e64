package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lockstep/internal/cli"
)

// TestTheAnswerOnATerminalCounts: only yes has a foreign record used.
func TestTheAnswerOnATerminalCounts(t *testing.T) {
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
		code := cli.Ctl(t.Context(), []string{"sweep", "--runs", folder, r.ID}, terminal(t, typed), &out, &out)
		if !strings.Contains(out.String(), "Use all of this? [y/N]") || (dialled.Load() > 0) != yes || !yes && (code != cli.ExitBadMatrix || !strings.Contains(out.String(), "nothing was opened")) {
			t.Errorf("%q: left with %d after %d connections:\n%s", typed, code, dialled.Load(), &out)
		}
	}
}

// terminal is one on which somebody has typed.
func terminal(t *testing.T, typed string) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	if _, err := master.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	return slave
}
