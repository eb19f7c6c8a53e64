//go:build unix

package drivers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// write creates a file and its folders.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func limited(t *testing.T, folders ...string) drivers.Access {
	t.Helper()
	a, err := drivers.LimitedAccess(folders, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// refused returns the error of reading a path. Both functions must return the same error.
func refused(t *testing.T, a drivers.Access, path string) string {
	t.Helper()
	text, err := a.ReadFile(path)
	if err == nil {
		t.Errorf("%q was read: %q", path, text)
		return ""
	}
	if payload, other := a.ReadPayload(path); other == nil || other.Error() != err.Error() {
		t.Errorf("%q as a payload: %q, %v; want %v", path, payload, other, err)
	}
	return err.Error()
}

func TestFilesOfAllowedFoldersAreRead(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a", "in", "password"), "good")
	write(t, filepath.Join(dir, "b", "token"), "better")
	if err := os.Symlink("in/password", filepath.Join(dir, "a", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "b"), filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
	a := limited(t, filepath.Join(dir, "a"), filepath.Join(dir, "c"))
	for path, want := range map[string]string{"a/in/password": "good", "a/../a/in/password": "good", "a/link": "good",
		"c/token": "better"} {
		for _, read := range []func(string) ([]byte, error){a.ReadFile, a.ReadPayload, drivers.FullAccess().ReadFile} {
			if text, err := read(dir + "/" + path); err != nil || string(text) != want {
				t.Errorf("%s: %q, %v; want %q", path, text, err, want)
			}
		}
	}
}

func TestNoOtherFileIsRead(t *testing.T) {
	dir := t.TempDir()
	open, shut := filepath.Join(dir, "open"), filepath.Join(dir, "shut")
	write(t, filepath.Join(shut, "agent.nk"), "SUSECRET")
	write(t, filepath.Join(open, "file"), "x")
	if err := os.Symlink(filepath.Join(shut, "agent.nk"), filepath.Join(open, "absolute")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../shut/agent.nk", filepath.Join(open, "relative")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../shut", filepath.Join(open, "folder")); err != nil {
		t.Fatal(err)
	}
	a := limited(t, open)
	for _, path := range []string{filepath.Join(shut, "agent.nk"), open + "/../shut/agent.nk", open + "2/file",
		filepath.Join(open, "absolute"),
		filepath.Join(open, "relative"), filepath.Join(open, "folder", "agent.nk"), open, "/etc/passwd", "/dev/zero",
		"file", ""} {
		refused(t, a, path)
		if got := refused(t, drivers.Access{}, path); !strings.Contains(got, "--files") {
			t.Errorf("%q without a folder: %q; want the flag that allows it", path, got)
		}
	}
}

// TestRefusalsDoNotTellWhatExists proves that the error for a forbidden file does not reveal whether the file exists.
func TestRefusalsDoNotTellWhatExists(t *testing.T) {
	dir := t.TempDir()
	open, there, absent := filepath.Join(dir, "open"), filepath.Join(dir, "shut", "there"),
		filepath.Join(dir, "shut", "gone!")
	write(t, there, "x")
	write(t, filepath.Join(open, "file"), "x")
	for name, to := range map[string]string{"a": there, "b": absent, "c": "../shut/there", "d": "../shut/gone!"} {
		if err := os.Symlink(to, filepath.Join(open, name)); err != nil {
			t.Fatal(err)
		}
	}
	a := limited(t, open)
	for _, pair := range [][2]string{{there, absent}, {open + "/a", open + "/b"}, {open + "/c", open + "/d"}} {
		if x, y := strings.ReplaceAll(refused(t, a, pair[0]), pair[0], ""),
			strings.ReplaceAll(refused(t, a, pair[1]), pair[1], ""); trimmed(x) != trimmed(y) {
			t.Errorf("of files that exist: %q; that do not: %q", x, y)
		}
	}
	t.Setenv("BROKER_PASSWORD", "set")
	for _, pair := range [][2]string{{"BROKER_PASSWORD", "BROKER_PASSWOR2"}, {"LOCKSTEP_TOKEN", "LOCKSTEP_TOKE2"}} {
		_, x := a.Getenv(pair[0])
		_, y := a.Getenv(pair[1])
		if x == nil || y == nil || strings.ReplaceAll(x.Error(), pair[0], "") != strings.ReplaceAll(y.Error(), pair[1],
			"") {
			t.Errorf("of variables that are set: %v; that are not: %v", x, y)
		}
	}
}

// trimmed removes the name of a link from the error of a system call ("openat a: path escapes from parent").
func trimmed(text string) string {
	_, cause, _ := strings.Cut(text, ": ")
	return cause
}

// TestOnlyRegularFilesOfLimitedSize proves that other files are neither waited for nor read, also with full access.
func TestOnlyRegularFilesOfLimitedSize(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, a := range []drivers.Access{limited(t, dir, "/dev"), drivers.FullAccess()} {
		for _, path := range []string{fifo, "/dev/zero", "/dev/null", dir} {
			if got := refused(t, a, path); !strings.Contains(got, "not a regular file") {
				t.Errorf("%s: %q; want that it is not a regular file", path, got)
			}
		}
		for read, limit := range map[string]int64{"file": drivers.MaxFile, "payload": drivers.MaxPayload} {
			path := filepath.Join(dir, read)
			write(t, path, "")
			if err := os.Truncate(path, limit+1); err != nil { // a sparse file
				t.Fatal(err)
			}
			text, err := map[string]func(string) ([]byte, error){"file": a.ReadFile,
				"payload": a.ReadPayload}[read](path)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("more than %d bytes", limit)) {
				t.Errorf("a %s of %d bytes: %d bytes, %v", read, limit+1, len(text), err)
			}
		}
		path := filepath.Join(dir, "fits")
		write(t, path, strings.Repeat("x", drivers.MaxFile))
		if text, err := a.ReadFile(path); err != nil || len(text) != drivers.MaxFile {
			t.Errorf("a file of the maximum size: %d bytes, %v", len(text), err)
		}
	}
}

func TestOnlyListedVariablesAreRead(t *testing.T) {
	t.Setenv("BROKER_PASSWORD", "theirs")
	t.Setenv("LOCKSTEP_TOKEN", "ours")
	a, err := drivers.LimitedAccess(nil, []string{"BROKER_PASSWORD", "NOT_SET"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if value, err := a.Getenv("BROKER_PASSWORD"); err != nil || value != "theirs" {
		t.Errorf("a listed variable: %q, %v", value, err)
	}
	for name, want := range map[string]string{"HOME": "--env HOME", "NOT_SET": "not set",
		"LOCKSTEP_TOKEN": "Lockstep's own"} {
		if value, err := a.Getenv(name); err == nil || value != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", name, value, err, want)
		}
	}
	if value, err := drivers.FullAccess().Getenv("BROKER_PASSWORD"); err != nil || value != "theirs" {
		t.Errorf("with full access: %q, %v", value, err)
	}
}

func TestWhatCannotBeAllowedIsListed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	folders := []string{dir, "relative", filepath.Join(dir, "absent"), filepath.Join(dir, "file")}
	variables := []string{"GOOD", "LOCKSTEP_TOKEN", "lockstep_token", "A=B", ""}
	_, err := drivers.LimitedAccess(folders, variables, false)
	for _, want := range append(folders[1:], variables[1:]...) {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", want)) {
			t.Errorf("%q is not named in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), fmt.Sprintf("%q", dir)) || strings.Contains(err.Error(), "GOOD") {
		t.Errorf("what can be allowed is named in %v", err)
	}
}

func TestCloudIdentityHasToBeAllowed(t *testing.T) {
	allowed, err := drivers.LimitedAccess(nil, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := limited(t).CloudIdentity(); err == nil || !strings.Contains(err.Error(), "--cloud-identity") {
		t.Errorf("not allowed: %v", err)
	}
	for _, a := range []drivers.Access{allowed, drivers.FullAccess()} {
		if err := a.CloudIdentity(); err != nil {
			t.Errorf("allowed: %v", err)
		}
	}
}
