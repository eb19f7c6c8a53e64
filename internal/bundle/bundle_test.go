package bundle

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

func TestBundleEqualsItsRun(t *testing.T) {
	run := recordedRun(t)
	data := made(t, run)
	if again := made(t, run); !bytes.Equal(data, again) {
		t.Error("the same run gave different bytes")
	}
	v, err := verified(t, data, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if !v.OK() || v.Outcomes != 1 {
		t.Errorf("%d outcomes; altered %v, different %v", v.Outcomes, v.Altered, v.Differences)
	}
	if all := strings.Join(v.Unknown, "\n"); !strings.Contains(all, "c0ffee-r2: no outcome") ||
		!strings.Contains(all, "its text was redacted") {
		t.Errorf("what cannot be recomputed:\n%s", all)
	}
	names := unpacked(t, data)
	for _, want := range []string{"manifest.json", "environment.json", "files/1/bodies.bin", "run/run.json",
		"run/matrix.cue", "run/tables.csv",
		"run/tasks/c0ffee-r1/snapshots.jsonl", "run/tasks/c0ffee-r1/publish.hlog", "run/tasks/c0ffee-r1/outcome.json"} {
		if _, has := names[want]; !has {
			t.Errorf("no %s in the bundle", want)
		}
	}
}

// unpacked returns the files of a bundle as an ordinary zip reader sees them.
func unpacked(t *testing.T, data []byte) map[string]string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
	}
	return files
}

func TestNoSecretGetsIntoABundle(t *testing.T) {
	run := recordedRun(t)
	for name, text := range unpacked(t, made(t, run)) {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "swordfish") {
			t.Errorf("%s contains a secret", name)
		}
	}
	// A file that Lockstep did not write into the record is rejected.
	if err := os.WriteFile(filepath.Join(run.Dir(), "notes.txt"), []byte("amqp://guest:hunter2@h/"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(io.Discard, run, "v1", true); err == nil || !strings.Contains(err.Error(), "notes.txt") {
		t.Errorf("a file with a password went in: %v", err)
	}
}

// TestAlteredFilesAreNamed flips single bits, each in its own copy of a bundle. Every file whose content changes is
// named. Bits that belong to no file have no effect.
func TestAlteredFilesAreNamed(t *testing.T) {
	data := made(t, recordedRun(t))
	files := unpacked(t, data)
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	within := map[string][2]int64{}
	for _, f := range z.File {
		at, err := f.DataOffset()
		if err != nil {
			t.Fatal(err)
		}
		within[f.Name] = [2]int64{at, at + int64(f.CompressedSize64)}
	}
	step := 1 + len(data)/120
	places := []int{}
	for i := 0; i < len(data); i += step {
		places = append(places, i)
	}
	// the beginning, the middle and the end of each file, and its header in the archive
	for _, at := range within {
		places = append(places, int(at[0]), int(at[0]+at[1])/2, int(at[1])-1, int(at[0])-1)
	}
	named := map[string]bool{}
	for _, i := range places {
		broken := bytes.Clone(data)
		broken[i] ^= 0x20
		owner := ""
		for name, at := range within {
			if int64(i) >= at[0] && int64(i) < at[1] {
				owner = name
			}
		}
		text, intact := complaint(t, broken)
		if intact {
			if !maps.Equal(unpacked(t, broken), files) {
				t.Errorf("byte %d of %q was altered, a file differs, and no error is printed", i, owner)
			}
			continue
		}
		if owner != "" && !strings.Contains(text, owner) {
			t.Errorf("byte %d of %s was altered: got %s", i, owner, text)
		}
		named[owner] = true
	}
	for name := range within {
		if !named[name] {
			t.Errorf("no alteration of %s was found", name)
		}
	}
}

// complaint returns the errors of a bundle, from its digests only, which is fast.
func complaint(t *testing.T, data []byte) (output string, intact bool) {
	t.Helper()
	b, err := Open(bytes.NewReader(data), int64(len(data)), DefaultLimits())
	if err != nil {
		return err.Error(), false
	}
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	faults, err := b.Unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(faults), len(faults) == 0
}

// repacked returns the bundle with an edited file and new digests: a deliberate forgery.
func repacked(t *testing.T, data []byte, name string, edit func(string) string) []byte {
	t.Helper()
	files := unpacked(t, data)
	edited := edit(files[name])
	if edited == files[name] {
		t.Fatalf("%s was not changed", name)
	}
	files[name] = edited
	var m Manifest
	b, err := Open(bytes.NewReader(data), int64(len(data)), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	m = b.Manifest
	sources := []source{{}}
	for i, f := range m.Files {
		s := source{file: File{Name: f.Name}, data: []byte(files[f.Name])}
		if err := s.digest(); err != nil {
			t.Fatal(err)
		}
		m.Files[i] = s.file
		sources = append(sources, s)
	}
	manifest, err := encode(m)
	if err != nil {
		t.Fatal(err)
	}
	sources[0] = source{file: File{Name: manifestName}, data: manifest}
	var out bytes.Buffer
	if err := archive(&out, sources); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestOtherNumbersAreFound proves that a forged outcome with new digests is detected, because it does not agree with
// the record.
func TestOtherNumbersAreFound(t *testing.T) {
	data := made(t, recordedRun(t))
	swap := func(old, now string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, now, 1) }
	}
	for _, c := range []struct {
		file string
		edit func(string) string
		want string
	}{
		{"run/tasks/c0ffee-r1/outcome.json", swap(`"number": 1000`, `"number": 2000`), "stored 2000, recomputed 1000"},
		{"run/tasks/c0ffee-r1/outcome.json", swap(`"sent": 2000`, `"sent": 3000`),
			"ledger.sent: stored 3000, recomputed 2000"},
		{"run/tasks/c0ffee-r1/outcome.json", swap(`"verdict": "valid"`, `"verdict": "invalid"`),
			`verdict: stored "invalid", recomputed "valid"`},
		{"run/tasks/c0ffee-r1/snapshots.jsonl", swap(`"sent":1000`, `"sent":900`),
			"values.publish.rate.number: stored 1000, recomputed 950"},
		{"run/tasks/c0ffee-r1/publish.hlog", swap("Lockstep", "Lookstep"), "publish.hlog: differs from the recomputed file"},
		{"run/tables.csv", swap("1000", "2000"), "run/tables.csv: differs from the recomputed file"},
		{"run/tables.txt", swap("1,000", "2,000"), "run/tables.txt: differs from the recomputed file"},
		{"run/matrix.cue", swap("rabbit", "rabbot"), "run/matrix.cue: differs from the recomputed file"},
		{"environment.json", swap(`"4.1"`, `"4.2"`), "environment.json: differs from the recomputed file"},
	} {
		v, err := verified(t, repacked(t, data, c.file, c.edit), DefaultLimits())
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		if output := strings.Join(v.Differences, "\n") + fmt.Sprint(v.Altered); !strings.Contains(output, c.want) {
			t.Errorf("%s: no %q in\n%s", c.file, c.want, output)
		}
	}
}

// The result of a search, and its earlier steps, are in no snapshots that verify reads.
func TestSearchesAreNotRecomputed(t *testing.T) {
	data := repacked(t, made(t, recordedRun(t)), "run/tasks/c0ffee-r1/outcome.json", func(s string) string {
		return strings.Replace(s, `"verdict"`, `"search": {"capacity": 5, "sure": true}, "verdict"`, 1)
	})
	v, err := verified(t, data, DefaultLimits())
	const want = "run/tasks/c0ffee-r1: the capacity, and all steps of the search but the last one"
	if err != nil || !slices.Contains(v.Unknown, want) {
		t.Errorf("cannot be recomputed: got %q, %v, want %q", v.Unknown, err, want)
	}
}

// An altered record is not judged again: only the altered file is named.
func TestAnAlteredRecordIsNotJudgedAgain(t *testing.T) {
	data := made(t, recordedRun(t))
	const name = "run/tasks/c0ffee-r1/snapshots.jsonl"
	broken := repacked(t, data, name, func(s string) string {
		return strings.Replace(s, `"sent":1000`, `"sent":1001`,
			1)
	})
	b, err := Open(bytes.NewReader(broken), int64(len(broken)), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range b.Manifest.Files {
		if f.Name == name {
			b.Manifest.Files[i].SHA256 = digest("as it was")
		}
	}
	v, err := Verify(t.Context(), b, t.TempDir(), "v1")
	if err != nil {
		t.Fatal(err)
	}
	if v.OK() || len(v.Altered) != 1 || !strings.Contains(v.Altered[0].Error(), name) || len(v.Differences) > 0 ||
		v.Outcomes > 0 {
		t.Errorf("altered %v, differs %q, %d outcomes judged", v.Altered, v.Differences, v.Outcomes)
	}
}

// Repetitions that an adaptive cell did not need are not reported as missing.
func TestUnneededRepetitionsAreNoDifference(t *testing.T) {
	run := manyRun(t, 12, &plan.StopRule{Rule: "ci(publish.rate) < 5% at 95%", Value: "publish.rate", Within: 0.05,
		Confidence: 0.95})
	for _, task := range run.Plan().Tasks()[:8] {
		measured(t, run, task)
	}
	v, err := verified(t, made(t, run), DefaultLimits())
	if err != nil || !v.OK() || v.Outcomes != 8 || v.Manifest.Tasks != 8 {
		t.Fatalf("%v: %+v", err, v)
	}
	if output := strings.Join(v.Unknown, "\n"); strings.Contains(output, "no outcome") {
		t.Errorf("got:\n%s", output)
	}
}

// A bundle of a running run is consistent, or is rejected with the next step.
func TestBundleOfAnActiveRunIsConsistent(t *testing.T) {
	run := manyRun(t, 20, nil)
	tasks := run.Plan().Tasks()
	measured(t, run, tasks[0])
	ended := make(chan struct{})
	defer func() { <-ended }()
	go func() {
		defer close(ended)
		for _, task := range tasks[1:] {
			measured(t, run, task)
		}
	}()
	for going := true; going; {
		select {
		case <-ended:
			going = false
		default:
		}
		var data bytes.Buffer
		if _, err := Write(&data, run, "v1", true); err != nil {
			if !strings.Contains(err.Error(), "ctl runs cancel") {
				t.Fatal(err)
			}
			continue
		}
		if v, err := verified(t, data.Bytes(), DefaultLimits()); err != nil || !v.OK() {
			t.Fatalf("%v; altered %v, differs %q", err, v.Altered, v.Differences)
		}
	}
}

func TestBundleOfAnotherVersion(t *testing.T) {
	data := made(t, recordedRun(t))
	data = repacked(t, data, "run/tasks/c0ffee-r1/outcome.json", func(s string) string {
		return strings.Replace(s, `"values": {`, `"values": {"of.old": {"number": 1},`, 1)
	})
	b, err := Open(bytes.NewReader(data), int64(len(data)), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	v, err := Verify(t.Context(), b, t.TempDir(), "v2")
	if err != nil || !v.OK() {
		t.Errorf("%v; altered %v, different %v", err, v.Altered, v.Differences)
	}
	if output := strings.Join(append(v.Notes, v.Unknown...), "\n"); !strings.Contains(output, "made by Lockstep v1") ||
		!strings.Contains(output, "of.old") {
		t.Errorf("got:\n%s", output)
	}
}

func TestDifferencesOfCellsAndOptions(t *testing.T) {
	then := recordedRun(t).Plan()
	now := then
	now.Repeat, now.Cells = 3, []plan.Cell{then.Cells[0]}
	now.Cells[0].ID, now.Cells[0].Broker.Options = "decaf0", []byte(`{"url":"amqp://guest:other@k/"}`)
	got := strings.Join(Cells(then, now), "\n")
	for _, want := range []string{"not in this run", "not in the bundle", "repetitions: 2, now 3",
		`options of broker rabbit: url: "amqp://guest:***@h/", now "amqp://guest:***@k/"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if same := Cells(then, then); len(same) > 0 {
		t.Errorf("the same plan differs: %q", same)
	}
}

// TestOnlyRegularFilesAreBundled proves that the opened file is checked: another file may have its path by then.
func TestOnlyRegularFilesAreBundled(t *testing.T) {
	p := recordedRun(t).Plan()
	file := payloads(p, true)[0].Path
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
		t.Fatal(err)
	}
	if read := payloads(p, true); read[0].Missing != "not a regular file" {
		t.Errorf("a folder in its place: %+v", read)
	}
	if err := (source{file: File{Name: "x"}, path: file}).add(zip.NewWriter(io.Discard)); !errors.Is(err, errIrregular) {
		t.Errorf("a folder in its place was bundled: %v", err)
	}
}

// Payload files of a fleet's agents are not read from the same path on this host.
func TestFilesOfAFleetAreNotBundled(t *testing.T) {
	p := recordedRun(t).Plan()
	if read := payloads(p, true); len(read) != 1 || read[0].Name == "" {
		t.Fatalf("of a local run: %+v", read)
	}
	p.Source.Server = "nats://bench-1:4222"
	if read := payloads(p, true); len(read) != 1 || read[0].Name != "" || read[0].Missing == "" {
		t.Errorf("of a fleet's run: %+v", read)
	}
}
