package matrices

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"

	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/schema"
)

// TestMatricesAreCUE proves, like cue vet, that each matrix is a package that loads with and without its tag, and that
// the schema can be imported.
func TestMatricesAreCUE(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	ctx := cuecontext.New()
	imported := ctx.BuildInstance(load.Instances([]string{schema.Path}, &load.Config{Dir: root})[0])
	if imported.Err() != nil {
		t.Fatal(imported.Err())
	}
	files, err := filepath.Glob("*.cue")
	if err != nil {
		t.Fatal(err)
	}
	for _, tags := range [][]string{nil, {"quick=true"}} {
		packages := map[string]bool{}
		for _, file := range files {
			inst := load.Instances([]string{"./matrices/" + file}, &load.Config{Dir: root, Tags: tags})[0]
			if inst.Err != nil {
				t.Errorf("%s with tags %q: %v", file, tags, inst.Err)
				continue
			}
			if packages[inst.PkgName] {
				t.Errorf("%s: another matrix is package %s, too", file, inst.PkgName)
			}
			packages[inst.PkgName] = true
			v := ctx.BuildInstance(inst)
			if err := v.Validate(); err != nil {
				t.Errorf("%s with tags %q: %v", file, tags, err)
			}
			if err := imported.LookupPath(cue.ParsePath("#Matrix")).Unify(v).Validate(); err != nil {
				t.Errorf("%s with tags %q, by the schema: %v", file, tags, err)
			}
		}
	}
	for _, pattern := range []string{"./matrices/...", "./schema/..."} {
		for _, inst := range load.Instances([]string{pattern}, &load.Config{Dir: root, Package: "*"}) {
			if v := ctx.BuildInstance(inst); v.Err() != nil || !strings.Contains(inst.ImportPath, "lockstep.test") {
				t.Errorf("%s: %s: %v", pattern, inst.ImportPath, v.Err())
			}
		}
	}
}

// TestSchemaCanBeImported proves, like cue vet, that the matrix in docs/reference/matrix.md imports the schema as the
// page describes: from a copy in another module, and below this repository. CUE must then reject unknown fields and
// invalid values. ctl must accept the matrix, too.
func TestSchemaCanBeImported(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/matrix.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```cue\n(@experiment.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/reference/matrix.md has no matrix that imports the schema")
	}
	text := string(block[1])
	m, err := matrix.Load("mine.cue", block[1], matrix.Narrow{})
	if err != nil {
		t.Fatal(err)
	}
	if run, err := m.Run(context.Background()); err != nil || len(run.Cells) != 2 {
		t.Errorf("%d cells: %v", len(run.Cells), err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	write(t, own, "cue.mod/module.cue", "module: \"matrices.example\"\nlanguage: version: \"v0.15.0\"\n")
	write(t, own, "cue.mod/pkg/"+schema.Path+"/schema.cue", matrix.Schema())
	for _, dir := range []string{own, root} {
		for _, c := range []struct{ old, new, want string }{
			{"", "", ""},
			{"persistent:", "persistant:", "cell.publishers.persistant: field not allowed"},
			{"axes:", "axess:", "axess: field not allowed"},
			{"persistent: false", "persistent: 1", "cell.publishers.persistent: conflicting values"},
		} {
			file := filepath.Join(dir, "matrices/mine.cue")
			overlay := map[string]load.Source{file: load.FromString(strings.Replace(text, c.old, c.new, 1))}
			inst := load.Instances([]string{"./matrices/mine.cue"}, &load.Config{Dir: dir, Overlay: overlay})[0]
			err := cuecontext.New().BuildInstance(inst).Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("in %s with %q: got %v, want %q", dir, c.new, err, c.want)
			}
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
