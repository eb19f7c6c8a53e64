package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func TestMain(m *testing.M) {
	register()
	os.Exit(m.Run())
}

// register registers the types that the dashboard library needs for decoding.
func register() {
	plugins.RegisterDefaultPlugins()
	cog.NewRuntime().RegisterDataqueryVariant(variants.DataqueryConfig{
		Identifier:                 sourceType,
		DataqueryUnmarshaler:       decodeFlux,
		StrictDataqueryUnmarshaler: decodeFlux,
	})
}

func decodeFlux(raw []byte) (variants.Dataquery, error) {
	var q flux
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return nil, err
	}
	return q, q.Validate()
}

// TestFilesAreFresh proves that the files are the output of the code.
func TestFilesAreFresh(t *testing.T) {
	for _, b := range boards {
		want, err := render(b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(b.file + ".json"); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s.json is stale: run go generate ./... in dashboards (%v)", b.file, err)
		}
	}
	files, err := filepath.Glob("*.json")
	if err != nil || len(files) != len(boards) {
		t.Errorf("%q are there of %d dashboards: %v", files, len(boards), err)
	}
}

// decode reads a file with the library's strict decoder.
func decode(t *testing.T, file string) (d dashboard.Dashboard) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.UnmarshalJSONStrict(text); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

// TestDashboardsAreGrafanas proves that each file is a valid dashboard of the published schema, and that all can be in
// one folder.
func TestDashboardsAreGrafanas(t *testing.T) {
	titles, uids := map[string]bool{folder: true}, map[string]bool{}
	for _, b := range boards {
		d := decode(t, b.file+".json")
		if err := d.Validate(); err != nil {
			t.Errorf("%s: %v", b.file, err)
		}
		if titles[*d.Title] || uids[*d.Uid] {
			t.Errorf("%s: another dashboard or the folder is called %q, or has the uid %q", b.file, *d.Title, *d.Uid)
		}
		titles[*d.Title], uids[*d.Uid] = true, true
		ids := map[uint32]bool{}
		for _, p := range d.Panels {
			if p.Panel == nil {
				continue
			}
			panel := p.Panel
			if panel.Id == nil || ids[*panel.Id] {
				t.Errorf("%s, %s: no id of its own", b.file, *panel.Title)
				continue
			}
			ids[*panel.Id] = true
			if panel.GridPos == nil || panel.GridPos.X+panel.GridPos.W > 24 || panel.GridPos.H == 0 ||
				*panel.Description == "" || len(panel.Targets) == 0 {
				t.Errorf("%s, %s: no place, no description or no query", b.file, *panel.Title)
			}
			if panel.FieldConfig == nil || panel.FieldConfig.Defaults.Unit == nil && panel.Type != "state-timeline" ||
				panel.FieldConfig.Defaults.NoValue == nil {
				t.Errorf("%s, %s: no unit, or nothing to say when it is empty", b.file, *panel.Title)
			}
		}
	}
}

// TestDecoderIsStrict proves that the decoder rejects unknown fields and wrong types.
func TestDecoderIsStrict(t *testing.T) {
	text, err := os.ReadFile("live.json")
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func([]byte) []byte{
		"an unknown field of a panel": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"gridPos"`),
				[]byte(`"gridPoz"`), 1)
		},
		"an unknown field of a query": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"refId"`),
				[]byte(`"refIt"`), 1)
		},
		"another data source": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"uid": "lockstep"`), []byte(`"uid": "other"`), -1)
		},
		"a width that is text": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"w": 12`), []byte(`"w": "12"`),
				1)
		},
	} {
		changed := change(slices.Clone(text))
		var d dashboard.Dashboard
		if bytes.Equal(changed, text) {
			t.Errorf("%s: nothing was changed", what)
		} else if err := d.UnmarshalJSONStrict(changed); err == nil {
			t.Errorf("%s was not noticed", what)
		}
	}
}

// flat returns all texts of a file that may contain Flux or refer to variables.
func flat(t *testing.T, file string) (queries []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if strings.Contains(v, "|>") {
				queries = append(queries, v)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(tree)
	return queries
}

var (
	measured    = regexp.MustCompile(`_measurement == "(\w+)"`)
	named       = regexp.MustCompile(`_field == "([\w.]+)"`)
	tagged      = regexp.MustCompile(`r\.(\w+) == "`)
	documented  = regexp.MustCompile("(?m)^\\| `([\\w.*]+)` \\|")
	measurement = regexp.MustCompile(`(?m)^## (lockstep_\w+)$`)
)

// TestQueriesKeepToTheSchema proves that dashboards query only data that Lockstep writes.
func TestQueriesKeepToTheSchema(t *testing.T) {
	schema, err := os.ReadFile("SCHEMA.md")
	if err != nil {
		t.Fatal(err)
	}
	// columns that queries create
	known := map[string]bool{"_measurement": true, "_field": true, "_value": true, "side": true, "series": true}
	for _, found := range append(documented.FindAllStringSubmatch(string(schema), -1),
		measurement.FindAllStringSubmatch(string(schema), -1)...) {
		known[found[1]] = true
	}
	for _, b := range boards {
		queries := flat(t, b.file+".json")
		if len(queries) < 5 {
			t.Errorf("%s has %d queries", b.file, len(queries))
		}
		for _, q := range queries {
			for _, pattern := range []*regexp.Regexp{measured, named, tagged} {
				for _, found := range pattern.FindAllStringSubmatch(q, -1) {
					value, bound := strings.CutSuffix(found[1], ".bound")
					if !known[value] || bound && !known["*.bound"] {
						t.Errorf("%s asks for %s, which SCHEMA.md does not have\n%s", b.file, found[1], q)
					}
				}
			}
		}
	}
	for _, v := range values {
		if !known[v] {
			t.Errorf("the value %s is not in SCHEMA.md", v)
		}
	}
}

// TestProvisioningNamesTheSource proves that the provisioning files name the data source and the folder of the
// dashboards.
func TestProvisioningNamesTheSource(t *testing.T) {
	for file, want := range map[string][]string{
		"provisioning/datasources/lockstep.yaml": {"uid: " + sourceUID, "type: " + sourceType,
			"version: Flux"},
		"provisioning/dashboards/lockstep.yaml": {"folder: " + folder, "type: file"},
		"../deploy/ansible/roles/grafana/templates/datasources.yaml.j2": {"uid: " + sourceUID, "type: " + sourceType,
			"version: Flux"},
		"../deploy/ansible/roles/grafana/templates/dashboards.yaml.j2": {"folder: " + folder, "type: file"},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s does not say %q", file, w)
			}
		}
	}
}
