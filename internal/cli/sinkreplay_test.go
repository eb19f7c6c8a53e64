package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/results"
	"lockstep/internal/sink"
)

// waitingPoints counts the points of a run that wait on disk.
func waitingPoints(t *testing.T, r *results.Run) (lines int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.SpoolDir(), "*", "*.lines"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines += int64(strings.Count(string(text), "\n"))
	}
	return lines
}

// TestReplayThatIsRefusedSaysWhatToPutRight: trying again does what has just failed, and nothing is lost.
func TestReplayThatIsRefusedSaysWhatToPutRight(t *testing.T) {
	status := 0
	db := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer db.Close()
	root := t.TempDir()
	record, err := results.Create(root, plan.Run{ID: "run-1", Name: "quick", Repeat: 1, Started: time.Now().UTC()})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "influx.json")
	if err := os.WriteFile(file, []byte(`{"url": "`+db.URL+`", "org": "o", "bucket": "b", "token": "t"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, x := range []struct {
		status int
		want   string
	}{{401, "put the token right"}, {404, "put bucket and org right"}, {302, "put the url right"}, {200, "put the url right"}, {422, "put right what it refuses"}} {
		status = x.status
		c := replayCommand()
		c.SetArgs([]string{"--runs", root, "--influx", file, "run-1"})
		c.SilenceErrors, c.SilenceUsage = true, true
		err := c.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "then ctl sink replay run-1") || strings.Contains(err.Error(), "answers again") {
			t.Errorf("%d: %v, want it to say %q", x.status, err, x.want)
		}
		all := record.Deliveries()
		if d := all[len(all)-1]; len(all) != i+1 || d.Dropped != 0 || d.Left != 1 || d.Points != 1 || d.Refused != x.status {
			t.Errorf("%d: delivery %d is %+v, want its one point left", x.status, len(all), d)
		}
	}
}

// TestReplayTakesAwayItsOwnAlone: what waits on disk goes when the same InfluxDB was given all of it; what waits for another stays, and so does what a run
// that still goes on puts there.
func TestReplayTakesAwayItsOwnAlone(t *testing.T) {
	db := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Token live" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer db.Close()
	root := t.TempDir()
	record, err := results.Create(root, plan.Run{ID: "run-1", Name: "quick", Repeat: 1, Started: time.Now().UTC()})
	if err != nil {
		t.Fatal(err)
	}
	replay := func(bucket string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "influx.json")
		text, err := json.Marshal(plan.Influx{URL: db.URL, Org: "o", Bucket: bucket, Token: "again"})
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		c := replayCommand()
		c.SetArgs([]string{"--runs", root, "--influx", file, "run-1"})
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Error(err)
		}
	}
	target, err := sink.Resolve(plan.Influx{URL: db.URL, Org: "o", Bucket: "b", Token: "live"}, os.LookupEnv, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	live := sink.Open(target, sink.Tuning{Linger: time.Millisecond, Flush: time.Millisecond}, "test", nil)
	live.Spool(record.SpoolDir())
	live.Begin(record.Plan())
	for end := time.Now().Add(2 * time.Minute); waitingPoints(t, record) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing waits on disk")
		}
	}
	replay("b") // beside the run
	live.End(time.Now(), "done")
	d := live.Close(t.Context())
	if n := waitingPoints(t, record); n != d.Spooled || n != 2 {
		t.Errorf("%d points are said to wait on disk, and %d do, want 2", d.Spooled, n)
	}
	replay("other")
	if n := waitingPoints(t, record); n != 2 {
		t.Errorf("another InfluxDB was given the points, and %d wait for the first, want 2", n)
	}
	replay("b")
	if _, err := os.Stat(record.SpoolDir()); err == nil {
		t.Error("all is written, and points still wait")
	}
}
