package procs

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

var ambient = regexp.MustCompile(`CapAmb:\s+(\S+)`)

// TestDropAmbient proves that a child of a thread has its ambient capabilities, and none after DropAmbient.
func TestDropAmbient(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can raise an ambient capability")
	}
	capabilities := make(chan [2]string)
	go func() {
		defer close(capabilities)
		runtime.LockOSThread() // the thread ends with this goroutine
		if err := raise(unix.CAP_KILL); err != nil {
			t.Errorf("raise a capability: %v", err)
			return
		}
		before := ofChild(t)
		if err := DropAmbient(); err != nil {
			t.Error(err)
		}
		capabilities <- [2]string{before, ofChild(t)}
	}()
	if got := <-capabilities; got != [2]string{"0000000000000020", "0000000000000000"} {
		t.Errorf("ambient capabilities of a child before and after: %q; want that of CAP_KILL, and none", got)
	}
}

// raise makes a capability of the thread ambient.
func raise(capability uint) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Inheritable |= 1 << capability
	if err := unix.Capset(&header, &data[0]); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(capability), 0, 0)
}

func ofChild(t *testing.T) string {
	text, err := exec.Command("cat", "/proc/self/status").Output()
	found := ambient.FindSubmatch(text)
	if err != nil || found == nil {
		t.Errorf("look at a child: %v\n%s", err, text)
		return ""
	}
	return string(found[1])
}
