// Package fleet deploys Lockstep with Ansible to hosts that it makes on this machine, and runs matrices across them.
// MongoDB, EventStoreDB and Grafana are not installed here: there are no programs of them to be had. Syntax and style
// of their roles are checked, by TestPlaybooks.
package fleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const ansibleFolder = "../../deploy/ansible"

// lab is what a variable of the lab leads to. Without it a test is skipped, and fails where a lab is required.
func lab(t *testing.T, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		message := fmt.Sprintf("%s is not set: go run ./test/lab run ansible sshd releases -- go test -timeout 90m ./test/fleet", variable)
		if os.Getenv("LOCKSTEP_LAB") == "required" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	return value
}

// ansible runs one of Ansible's programs in its folder of playbooks.
func ansible(t *testing.T, settings []string, name string, args ...string) (string, error) {
	t.Helper()
	bin := lab(t, "LOCKSTEP_ANSIBLE")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	c.Dir = ansibleFolder
	c.WaitDelay = 5 * time.Second
	home := t.TempDir()
	c.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "ANSIBLE_HOME="+home,
		"ANSIBLE_CONFIG=ansible.cfg",
		"ANSIBLE_LOCAL_TEMP="+home, "ANSIBLE_HOST_KEY_CHECKING=false", "ANSIBLE_NOCOLOR=1", "NO_COLOR=1",
		"XDG_CACHE_HOME="+home)
	c.Env = append(c.Env, settings...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestPlaybooks checks syntax and style of all playbooks and roles, those included which nothing here runs.
func TestPlaybooks(t *testing.T) {
	books, err := filepath.Glob(filepath.Join(ansibleFolder, "*.yml"))
	if err != nil || len(books) < 3 {
		t.Fatalf("there are the playbooks %v, %v", books, err)
	}
	args := []string{"--offline", "--profile", "production", "--nocolor", "roles"}
	for i, book := range books {
		books[i] = filepath.Base(book)
	}
	args = append(args, books...)
	for _, inventory := range []string{"small", "large"} {
		if out, err := ansible(t, nil, "ansible-playbook",
			append([]string{"--syntax-check", "-i", "inventory/" + inventory + ".yml"}, books...)...); err != nil {
			t.Errorf("syntax, with the %s inventory: %v\n%s", inventory, err, out)
		}
	}
	if out, err := ansible(t, nil, "ansible-lint", args...); err != nil {
		t.Errorf("ansible-lint: %v\n%s", err, out)
	}
}
