package matrices

import (
	"path/filepath"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"
)

// TestMatricesAreCUE proves, like cue vet, that each matrix is a package that loads with and without its tag, and that
// the schema can be imported.
func TestMatricesAreCUE(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	ctx := cuecontext.New()
	schema := ctx.BuildInstance(load.Instances([]string{"lockstep.test/schema"}, &load.Config{Dir: root})[0])
	if schema.Err() != nil {
		t.Fatal(schema.Err())
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
			if err := schema.LookupPath(cue.ParsePath("#Matrix")).Unify(v).Validate(); err != nil {
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
