package matrix

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestInvalidMatrices compares the errors of each matrix testdata/invalid/NAME.cue with NAME.errors.
func TestInvalidMatrices(t *testing.T) {
	files, err := filepath.Glob("testdata/invalid/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		wanted := map[string]string{}
		for _, f := range archive.Files {
			wanted[f.Name] = string(f.Data)
		}
		written := &txtar.Archive{Comment: archive.Comment}
		for _, f := range archive.Files {
			name, is := strings.CutSuffix(f.Name, ".cue")
			if !is {
				continue
			}
			cases++
			m, err := Load(f.Name, f.Data, Narrow{})
			if err == nil {
				_, err = m.Run(t.Context())
			}
			got := "accepted\n"
			if faults := (Errors)(nil); errors.As(err, &faults) {
				got = faults.Error() + "\n"
			} else if t.Errorf("%s: %s is accepted: %v", file, name, err); err != nil {
				continue
			}
			written.Files = append(written.Files, f, txtar.File{Name: name + ".errors", Data: []byte(got)})
			if want := wanted[name+".errors"]; got != want && !*update {
				t.Errorf("%s: %s:\n%s\nwant\n%s", file, name, got, want)
			}
			for _, jargon := range []string{"empty disjunction", "subsum", "incomplete", "bottom", "_|_",
				"non-concrete", "conflicting", "out of bound"} {
				if strings.Contains(got, jargon) {
					t.Errorf("%s: %s: %q is CUE's jargon: %s", file, name, jargon, got)
				}
			}
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(written), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if cases < 60 {
		t.Errorf("%d invalid matrices, want at least 60", cases)
	}
}
