package repo

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestLevelsAreDrawn proves that ARCHITECTURE.md draws each package once, with the packages that it may import, all of
// them below it. Drivers and programs are left out.
func TestLevelsAreDrawn(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, levels, found := strings.Cut(string(text), "## Levels")
	_, levels, opened := strings.Cut(levels, "```\n")
	levels, _, closed := strings.Cut(levels, "```")
	if !found || !opened || !closed {
		t.Fatal("ARCHITECTURE.md draws no levels")
	}
	drawn, place := map[string]string{}, map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(levels), "\n") {
		left, right, _ := strings.Cut(line[min(2, len(line)):], "→")
		for _, name := range strings.Fields(left) {
			if _, twice := drawn[name]; twice {
				t.Errorf("%s is drawn twice", name)
			}
			drawn[name], place[name] = sorted(strings.Fields(right)), i
		}
	}
	for name, may := range allowed {
		if strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "pkg/drivers/") &&
			name != "pkg/drivers/external" && name != "pkg/drivers/kit" {
			continue // drawn as cmd and drivers
		}
		short := strings.TrimPrefix(strings.TrimPrefix(name, "internal/"), "pkg/")
		var below []string
		for _, p := range may {
			p = strings.TrimPrefix(strings.TrimPrefix(p, "internal/"), "pkg/")
			below = append(below, p)
			if place[p] <= place[short] {
				t.Errorf("%s imports %s, and is not drawn above it", short, p)
			}
		}
		if got, there := drawn[short]; !there || got != sorted(below) {
			t.Errorf("%s is drawn with %q, and may import %q", short, got, sorted(below))
		}
		delete(drawn, short)
	}
	for name := range drawn {
		if name != "cmd" {
			t.Errorf("%s is drawn, and there is no such package", name)
		}
	}
}

func sorted(names []string) string { return strings.Join(slices.Sorted(slices.Values(names)), " ") }

// TestNothingIsAllowedInVain proves that each allowed import is used.
func TestNothingIsAllowedInVain(t *testing.T) {
	imports := map[string][]string{}
	for _, p := range product(t) {
		imports[strings.TrimPrefix(p.ImportPath, "example.org/lockstep/lockstep/")] = p.Imports
	}
	for name, may := range allowed {
		for _, p := range may {
			if !slices.Contains(imports[name], "example.org/lockstep/lockstep/"+p) {
				t.Errorf("%s may import %s, and does not", name, p)
			}
		}
	}
}
