package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The apt configuration for packages of another release does not use the machine's packages.
func TestAptOfItsOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "apt")
	file, err := configureApt(dir, "http://mirror.example/debian/", "trixie")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(config)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, "Dir::") && value != `"";` && value != `"/dev/null";` &&
			!strings.HasPrefix(value, `"`+dir+"/") {
			t.Errorf("%s is %s, outside %s", name, value, dir)
		}
	}
	sources, err := os.ReadFile(filepath.Join(dir, "sources.list"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(sources), "deb [target=Packages") ||
		!strings.HasSuffix(string(sources), "] http://mirror.example/debian/ trixie main\n") {
		t.Errorf("the sources are %q", sources)
	}
}

// The error names a program that is missing for a separate root.
func TestRootNeedsPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := newReleaseRoot("thing-1", "trixie", "thing").meet(t.Context(), testSite(t))
	if err == nil || !strings.HasPrefix(err.Error(), "mount a root of its own: ") {
		t.Errorf("error %v", err)
	}
}
