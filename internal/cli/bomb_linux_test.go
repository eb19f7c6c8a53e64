package cli_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/bundle"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/runs"
)

// TestSmallBundlesDoNotExhaustTheReader proves that ctl rejects bundles, and their unpacked records, that would use
// gigabytes of memory.
func TestSmallBundlesDoNotExhaustTheReader(t *testing.T) {
	number := strconv.Itoa(plan.RecordFormat)
	version, format := `{"version":`+number, `{"format":`+number
	cells := func(n int) string {
		return version + `,"id":"bomb","repeat":1,"cells":[{}` + strings.Repeat(",{}", n-1) + `]}`
	}
	for name, x := range map[string]struct {
		size int // of the bundle
		file string
		text string
		want string
	}{
		"2 KB":  {2_381, "run/run.json", cells(550_000), "cells: too large"},
		"43 KB": {42_909, "run/run.json", cells(4_400_000), "cells: too large"},
		"tasks": {10_000, "run/run.json", version + `,"id":"bomb","repeat":2000000000,"cells":[{}]}`,
			"at most 50000 tasks: too large"},
		"excluded": {42_909, "run/run.json", `{"id":"bomb","excluded":[{}` + strings.Repeat(",{}", 4_400_000) + `]}`,
			"bytes of memory: too large"},
		"manifest": {42_909, "manifest.json", format + `,"files":[{}` + strings.Repeat(",{}", 4_400_000) + `]}`,
			"bytes of memory: too large"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "bomb.zip")
		if err := os.WriteFile(file, packed(t, x.size, x.file, x.text), 0o600); err != nil {
			t.Fatal(err)
		}
		reads := [][]string{{"bundle", "verify", file}, {"bundle", "rerun", file}}
		if x.file == "run/run.json" {
			if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "run", "run.json"), []byte(x.text), 0o600); err != nil {
				t.Fatal(err)
			}
			reads = append(reads, []string{"show", filepath.Join(dir, "run")})
		}
		for _, args := range reads {
			refused(t, name, args, x.want, 512)
		}
	}
}

// TestSmallRecordsDoNotExhaustTheReader proves that ctl does not read snapshots that would use gigabytes of memory.
func TestSmallRecordsDoNotExhaustTheReader(t *testing.T) {
	dir := t.TempDir()
	cell := plan.Cell{ID: "c0ffee", Workload: plan.Default(),
		Broker: plan.Broker{Name: "b", Driver: "loopback", Options: []byte("{}")}}
	run, err := runs.Create(dir, plan.Run{Version: plan.RecordFormat, ID: "bomb", Repeat: 1, Started: time.Now().UTC(),
		Cells: []plan.Cell{cell}})
	if err != nil {
		t.Fatal(err)
	}
	task := run.Plan().Tasks()[0].ID
	if err := run.Finish(plan.Outcome{Version: plan.RecordFormat, Run: "bomb", Task: task, Cell: cell.ID, Repetition: 1,
		Verdict: plan.Valid}); err != nil {
		t.Fatal(err)
	}
	var w record.Window
	for v := int64(1); v < int64(time.Hour); v += int64(1) << max(0, bits.Len64(uint64(v))-11) {
		w.RecordN(record.Publish, v, 1)
	}
	dense, err := json.Marshal(w.Hists[record.Publish])
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for n := range 120 {
		var windows []string
		for i := range 30 {
			windows = append(windows, fmt.Sprintf(`{"index":%d,"hists":{"publish":%s}}`, 30*n+i, dense))
		}
		fmt.Fprintf(&text, `{"agent":"a","seq":%d,"windows":[%s]}`+"\n", n+1, strings.Join(windows, ","))
	}
	if err := os.WriteFile(filepath.Join(run.Dir(), "tasks", task, "snapshots.jsonl"), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "bomb.zip"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Write(file, run, "test", false); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Close(), run.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"bundle", "verify", file.Name()}, {"show", "-o", "html", run.Dir()}} {
		// The race detector needs two to three times the memory of the snapshots.
		refused(t, fmt.Sprint(text.Len()>>10, " KiB of snapshots"), args, "its snapshots need more than", 1024)
	}
}

// refused executes ctl, which must end with an error and use at most maxRSS MiB of memory.
func refused(t *testing.T, name string, args []string, want string, maxRSS int64) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), ctlVariable+"="+strings.Join(args, "\n"))
	out, err := c.CombinedOutput()
	// Not Rusage.Maxrss: it starts with the memory of the process that started this one.
	var peak int64 // KiB
	_, printed, _ := strings.Cut(string(out), "\npeak memory:")
	if _, err := fmt.Sscan(printed, &peak); err != nil {
		t.Fatalf("%s: ctl %s: read its peak memory: %v: %s", name, args[0], err, out)
	}
	rss := peak >> 10
	t.Logf("%s: ctl %s: %d MiB, %v: %.200s", name, args[0], rss, err, out)
	if err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%s: ctl %s: %v: want %q: %.500s", name, args[0], err, want, out)
	}
	if rss > maxRSS {
		t.Errorf("%s: ctl %s took %d MiB", name, args[0], rss)
	}
}

// packed returns a bundle of at least this size, in which one file has this text.
func packed(t *testing.T, size int, name, text string) []byte {
	t.Helper()
	files := map[string]string{"environment.json": "{}", name: text}
	if name != "manifest.json" {
		m := bundle.Manifest{Format: plan.RecordFormat, Run: "bomb"}
		for f, text := range files {
			m.Files = append(m.Files, bundle.File{Name: f, Size: int64(len(text)),
				SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(text)))})
		}
		manifest, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		files["manifest.json"] = string(manifest)
	}
	var data []byte
	for _, comment := range []int{0, 1} { // a bundle may expand to 300 times its size
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		if err := z.SetComment(strings.Repeat("x", comment*max(0, size-len(data)))); err != nil {
			t.Fatal(err)
		}
		for _, f := range slices.Sorted(maps.Keys(files)) {
			w, err := z.Create(f)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(files[f])); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		data = b.Bytes()
	}
	return data
}
