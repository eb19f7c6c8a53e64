package bundle

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// zipped returns an archive with these files.
func zipped(t *testing.T, names []string, data func(name string) []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range names {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestHostileBundlesAreRefused(t *testing.T) {
	empty := func(string) []byte { return []byte("{}") }
	good := made(t, recordedRun(t))
	small := DefaultLimits()
	small.Files = 3
	for _, c := range []struct {
		what   string
		data   []byte
		limits Limits
		want   string
	}{
		{"nothing", nil, DefaultLimits(), "not readable as a bundle"},
		{"cut off", good[:len(good)/2], DefaultLimits(), "not readable as a bundle"},
		{"above", zipped(t, []string{"../../etc/passwd"}, empty), DefaultLimits(), "unexpected file"},
		{"absolute", zipped(t, []string{"/etc/passwd"}, empty), DefaultLimits(), "unexpected file"},
		{"within", zipped(t, []string{"run/../../x"}, empty), DefaultLimits(), "unexpected file"},
		{"backslash", zipped(t, []string{`run\..\x`}, empty), DefaultLimits(), "unexpected file"},
		{"hidden", zipped(t, []string{"run/.ssh"}, empty), DefaultLimits(), "unexpected file"},
		{"directory", zipped(t, []string{"run/x/"}, func(string) []byte { return nil }), DefaultLimits(),
			"unexpected file"},
		{"twice", zipped(t, []string{"manifest.json", "manifest.json"}, empty), DefaultLimits(), "duplicate file"},
		{"many", zipped(t, []string{"run/a", "run/b", "run/c", "run/d"}, empty), small, "4 files exceed the limit of 3"},
		{"bomb", zipped(t, []string{"manifest.json"}, func(string) []byte { return make([]byte, 64<<20) }),
			DefaultLimits(), "the unpacked bundle exceeds"},
		{"no manifest", zipped(t, []string{"environment.json"}, empty), DefaultLimits(),
			"manifest.json is altered: missing"},
		{"another format", zipped(t, []string{"manifest.json"}, empty), DefaultLimits(), "format 0"},
		{"listed only", zipped(t, []string{"manifest.json"},
			func(string) []byte {
				return fmt.Appendf(nil, `{"format":%d,"files":[{"name":"run/x"}]}`, plan.RecordFormat)
			}), DefaultLimits(),
			"run/x is altered: listed in the manifest, but missing"},
		{"not listed", zipped(t, []string{"manifest.json", "run/x"},
			func(string) []byte { return fmt.Appendf(nil, `{"format":%d}`, plan.RecordFormat) }), DefaultLimits(), "not listed in the manifest"},
		{"listed twice", zipped(t, []string{"manifest.json"}, func(string) []byte {
			return fmt.Appendf(nil, `{"format":%d,"files":[{"name":"manifest.json"}]}`, plan.RecordFormat)
		}), DefaultLimits(), "twice"},
		{"many repetitions", repacked(t, good, "run/run.json",
			func(s string) string { return strings.Replace(s, `"repeat": 2`, `"repeat": 2000000000`, 1) }),
			DefaultLimits(), "want at most 50000 tasks"},
		{"long measurement", repacked(t, good, "run/run.json",
			func(s string) string { return strings.Replace(s, `"measure": "2s"`, `"measure": "2000000h"`, 1) }),
			DefaultLimits(), "measure"},
		{"strange cell", repacked(t, good, "run/run.json",
			func(s string) string { return strings.Replace(s, `"id": "c0ffee"`, `"id": "../../x"`, 1) }),
			DefaultLimits(), "a cell or group with the name"},
		{"long line", repacked(t, good, "run/tasks/c0ffee-r1/snapshots.jsonl",
			func(s string) string { return s + strings.Repeat("1234567890", 200_000) }),
			func() Limits { l := DefaultLimits(); l.Line = 1 << 20; return l }(), "more than 1048576 bytes in one file or line"},
	} {
		t.Run(c.what, func(t *testing.T) {
			v, err := verified(t, c.data, c.limits)
			if err == nil {
				err = errors.Join(append(v.Altered, errors.New(strings.Join(v.Differences, "\n")))...)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// FuzzBundle proves that any input is read within the limits and without a panic, and that every file of an intact
// bundle has its digest.
func FuzzBundle(f *testing.F) {
	run := recordedRun(f)
	var b bytes.Buffer
	if _, err := Write(&b, run, "v1", true); err != nil {
		f.Fatal(err)
	}
	good := b.Bytes()
	f.Add(good)
	f.Add(good[:len(good)-7])
	limits := DefaultLimits()
	limits.Total, limits.Document, limits.Line = 8<<20, 4<<20, 1<<20
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := verified(t, data, limits)
		if err != nil || !v.OK() {
			return
		}
		files := unpacked(t, data)
		for _, f := range v.Manifest.Files {
			if digest(files[f.Name]) != f.SHA256 {
				t.Errorf("%s has another digest than in the manifest, and the bundle is called intact", f.Name)
			}
		}
	})
}
