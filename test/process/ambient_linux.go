package process

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// WithAmbient runs the calling test again in a process with the ambient capability CAP_KILL, and reports whether this
// is that process. The test must return if it is not.
func WithAmbient(t *testing.T) bool {
	t.Helper()
	const again = "TEST_WITH_AMBIENT_CAPABILITIES"
	if os.Getenv(again) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can raise an ambient capability")
	}
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), again+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_KILL}}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("with an ambient capability: %v\n%s", err, out)
	}
	return false
}
