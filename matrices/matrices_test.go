// Package matrices contains the experiments that ship with Lockstep. Its tests prove that each of them loads.
package matrices

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

// These files are the first that a user runs.
func TestShippedMatricesLoad(t *testing.T) {
	files, err := filepath.Glob("*.cue")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %d matrices: %v", len(files), err)
	}
	want := map[string][2]int{"quick.cue": {10, 10}, "async-vs-sync.cue": {180, 12}, "prefetch.cue": {7, 4},
		"capacity.cue": {9, 3},
		"mixed.cue":    {4, 2}, "sidebyside.cue": {3, 1}, "mqperf-2017.cue": {9*(5*3+2*5) + 6*4 + 2*6, 20}}
	// executed once, not for comparisons
	once := []string{"bindings.cue", "full.cue", "mixed.cue", "mqperf-2017.cue", "quick.cue", "shapes.cue"}
	for _, file := range files {
		for i, short := range []bool{false, true} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m, err := matrix.Load(file, text, matrix.Narrow{Quick: short})
			if err != nil {
				t.Errorf("%s, short %v:\n%v", file, short, err)
				continue
			}
			run, err := m.Run(context.Background())
			if err != nil {
				t.Errorf("%s, short %v:\n%v", file, short, err)
				continue
			}
			for _, x := range run.Excluded {
				if x.Kind == "skipped" || file == "full.cue" && x.Reason != "" {
					continue
				}
				t.Errorf("%s, short %v: %s is %s: %s", file, short, plan.Cell{Coordinates: x.Coordinates}.Name(),
					x.Kind, x.Reason)
			}
			if n, known := want[file]; known && len(run.Cells) != n[i] {
				t.Errorf("%s, short %v: %d cells, want %d", file, short, len(run.Cells), n[i])
			}
			for _, note := range run.Notes() {
				if file == "versions.cue" && strings.Contains(note, "are idle") {
					t.Errorf("%s, short %v: releases are compared by idle consumers: %s", file, short, note)
				}
			}
			for _, s := range compare.Shortages(run) {
				if !short && !slices.Contains(once, file) && file != "nightly.cue" { // nightly: between runs
					t.Errorf("%s: ctl compare --by %s needs %d repetitions, there are %d", file, s.By, s.Needed, s.Have)
				}
			}
			_, about := matrix.Estimate(run)
			t.Logf("%s, short %v: %d cells, %d agents, about %s", file, short, len(run.Cells), run.Agents,
				about.Round(time.Second))
			if file == "quick.cue" && about > 45*time.Second {
				t.Errorf("%s takes %s by estimate; the README guarantees a minute", file, about)
			}
		}
	}
}
