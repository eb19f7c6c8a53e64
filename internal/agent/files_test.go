package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMatricesReadTheFilesOfNamedFoldersAlone(t *testing.T) {
	dir := t.TempDir()
	open, shut := filepath.Join(dir, "open"), filepath.Join(dir, "shut")
	for path, text := range map[string]string{filepath.Join(open, "in", "password"): "good", filepath.Join(shut, "agent.nk"): "SUSECRET"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(shut, "agent.nk"), filepath.Join(open, "link")); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFiles([]string{open})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := f.ReadFile(filepath.Join(open, "in", "password")); err != nil || string(text) != "good" {
		t.Errorf("a file that may be read: %q, %v", text, err)
	}
	for _, path := range []string{filepath.Join(shut, "agent.nk"), open + "/../shut/agent.nk", filepath.Join(open, "link"), open, "/dev/zero", "/etc/passwd", "password", ""} {
		if text, err := f.ReadFile(path); err == nil {
			t.Errorf("%q was read: %q", path, text)
		}
		if f.Check(path) == nil {
			t.Errorf("%q may be read as a payload", path)
		}
	}
	var none Files
	if _, err := none.ReadFile(filepath.Join(open, "in", "password")); err == nil || !strings.Contains(err.Error(), "--files") {
		t.Errorf("without a folder: %v: want to read what to do", err)
	}
	for _, bad := range []string{"relative", filepath.Join(dir, "absent"), filepath.Join(open, "in", "password")} {
		if _, err := OpenFiles([]string{bad}); err == nil {
			t.Errorf("%q was taken as a folder", bad)
		}
	}
}

func TestMatricesDoNotSeeTheAgentsOwnVariables(t *testing.T) {
	t.Setenv("LOCKSTEP_TOKEN", "secret")
	t.Setenv("BROKER_PASSWORD", "theirs")
	if v, ok := Getenv("LOCKSTEP_TOKEN"); ok || v != "" {
		t.Errorf("a matrix reads the agent's own token: %q", v)
	}
	if v, ok := Getenv("BROKER_PASSWORD"); !ok || v != "theirs" {
		t.Errorf("a matrix does not read the broker's password: %q", v)
	}
}
