// Package fleet proves that the Ansible playbooks deploy, upgrade and remove Lockstep and brokers on hosts, and that
// matrices run across the hosts. The hosts are namespaces of this machine. MongoDB, EventStoreDB and Grafana are not
// installed, because their programs are not available. TestPlaybooks checks the syntax and style of their roles.
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

// lab returns a variable of the lab. Without it the test is skipped, or fails if a lab is required.
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

// ansible runs one of Ansible's programs in the folder of the playbooks.
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

// TestPlaybooks checks the syntax and style of all playbooks and roles, including those that no test runs.
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
