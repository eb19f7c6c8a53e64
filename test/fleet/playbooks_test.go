// Package fleet checks what deploys a fleet.
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
func lab(t *testing.T, variable, part string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		message := fmt.Sprintf("%s is not set: go run ./test/lab run ansible -- go test ./test/fleet (it lacks %s)", variable, part)
		if os.Getenv("LOCKSTEP_LAB") == "required" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	return value
}

// ansible runs one of Ansible's programs in its folder of playbooks.
func ansible(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	bin := lab(t, "LOCKSTEP_ANSIBLE", "ansible")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	c.Dir = ansibleFolder
	home := t.TempDir()
	c.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "ANSIBLE_HOME="+home, "ANSIBLE_CONFIG=ansible.cfg",
		"ANSIBLE_LOCAL_TEMP="+home, "ANSIBLE_HOST_KEY_CHECKING=false", "ANSIBLE_NOCOLOR=1", "NO_COLOR=1", "XDG_CACHE_HOME="+home)
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestPlaybooks checks syntax and style of all playbooks and roles. It runs none of them.
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
		if out, err := ansible(t, "ansible-playbook", append([]string{"--syntax-check", "-i", "inventory/" + inventory + ".yml"}, books...)...); err != nil {
			t.Errorf("syntax, with the %s inventory: %v\n%s", inventory, err, out)
		}
	}
	if out, err := ansible(t, "ansible-lint", args...); err != nil {
		t.Errorf("ansible-lint: %v\n%s", err, out)
	}
}
