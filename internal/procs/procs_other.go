//go:build !linux

package procs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// Groups reports whether AwaitExit waits and KillGroup kills the whole group.
const Groups = false

// NewGroup has no effect on this system.
func NewGroup(*exec.Cmd, bool) {}

// NewSession has no effect on this system.
func NewSession(*exec.Cmd) {}

// Self returns the path of this program.
func Self() (string, error) { return os.Executable() }

// DropAmbient does nothing: only Linux has ambient capabilities.
func DropAmbient() error { return nil }

// AwaitExit returns at once on this system.
func AwaitExit(int) {}

// KillGroup kills only the child on this system.
func KillGroup(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// Pause returns an error on this system.
func Pause(*os.Process) error { return unsupported("pause a process") }

// Resume returns an error on this system.
func Resume(*os.Process) error { return unsupported("resume a process") }

func unsupported(what string) error {
	return fmt.Errorf("%s: %w on %s; run the agent on Linux", what, errors.ErrUnsupported, runtime.GOOS)
}
