package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestADriverInAnotherModuleBuilds proves that a driver outside of this repository needs only its public packages. It
// moves the reference driver and its conformance test into a module of their own.
func TestADriverInAnotherModuleBuilds(t *testing.T) {
	t.Parallel()
	const module = "example.org/someone/driver"
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, declared, _ := strings.Cut(read("go.mod"), "\nmodule ")
	ours, versions, _ := strings.Cut(declared, "\n")
	write("go.mod", "module "+module+"\n"+versions+"\nrequire "+ours+" v0.0.0\nreplace "+ours+" => "+here+"\n")
	write("go.sum", read("go.sum"))
	files, err := filepath.Glob(filepath.Join(root, "pkg/drivers/loopback/*"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files of the driver, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, "_test.go") && name != "driver_test.go" {
			continue
		}
		write(name, strings.ReplaceAll(read("pkg/drivers/loopback/"+name), ours+"/pkg/drivers/loopback", module))
	}
	vet := exec.Command("go", "vet", ".")
	vet.Dir = dir
	vet.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}
