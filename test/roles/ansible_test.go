// Package roles proves that the Ansible roles of brokers write valid files, and that the brokers run with them if their
// programs are available.
package roles

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Versions for the tests and for linting, if the host has no Ansible.
var pinned = []string{"ansible-core==2.19.14", "ansible-lint==26.10.1"}

const folder = "../../deploy/ansible"

// ansible returns the folder of Ansible's programs: from the path, from $LOCKSTEP_ANSIBLE, or, if tests may install
// programs, from a virtual environment in the user's cache.
func ansible(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("LOCKSTEP_ANSIBLE"); dir != "" {
		return dir
	}
	if file, err := exec.LookPath("ansible-playbook"); err == nil {
		return filepath.Dir(file)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "lockstep-lab", "programs", "ansible-core-2.19.14")
	if _, err := os.Stat(filepath.Join(dir, "complete")); err == nil {
		return filepath.Join(dir, "bin")
	}
	if os.Getenv("LOCKSTEP_LONG") == "" {
		t.Skip("no ansible-playbook here: install it, or name its folder in LOCKSTEP_ANSIBLE, or install it with LOCKSTEP_LONG=1")
	}
	execute(t, 10*time.Minute, nil, "python3", "-m", "venv", dir)
	execute(t, 10*time.Minute, nil, filepath.Join(dir, "bin", "pip"), append([]string{"install", "-q"}, pinned...)...)
	if err := os.WriteFile(filepath.Join(dir, "complete"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "bin")
}

// execute runs a command and returns its output. The test fails if the command fails.
func execute(t *testing.T, limit time.Duration, env []string, name string, args ...string) string {
	t.Helper()
	out, err := attempt(t, limit, env, name, args...)
	if err != nil {
		const limit = 6000 // bytes; the cause is at the end
		t.Fatalf("%s %q: %v\n%s", name, args, err, out[max(0, len(out)-limit):])
	}
	return out
}

func attempt(t *testing.T, limit time.Duration, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = folder
	c.Env = append(os.Environ(), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.String(), errors.Join(err, ctx.Err())
}

// environment returns Ansible's environment, without settings of the user.
func environment(bin, home string) []string {
	return []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "ANSIBLE_NOCOLOR=1",
		"ANSIBLE_HOME=" + home,
		"ANSIBLE_ROLES_PATH=roles", "ANSIBLE_PIPELINING=1", "ANSIBLE_LOCALHOST_WARNING=false",
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
