package cli

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

// TestErrorsOfReplay proves that a replay that InfluxDB rejects fails with a remedy.
func TestErrorsOfReplay(t *testing.T) {
	status := 0
	db := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer db.Close()
	root := t.TempDir()
	record, err := runs.Create(root, plan.Run{ID: "run-1", Name: "quick", Repeat: 1, Started: time.Now().UTC()})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "influx.json")
	if err := os.WriteFile(file, []byte(`{"url": "`+db.URL+`", "org": "o", "bucket": "b", "token": "t"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	for i, x := range []struct {
		status int
		want   string
	}{{401, "use a token"}, {404, "correct bucket and org"}, {302, "correct the url"}, {200, "correct the url"},
		{422, "correct the cause"}} {
		status = x.status
		c := runsReplay()
		c.SetArgs([]string{"--runs", root, "--influx", file, "run-1"})
		c.SilenceErrors, c.SilenceUsage = true, true
		err := c.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), x.want) ||
			!strings.Contains(err.Error(), "then run: ctl runs replay run-1") ||
			strings.Contains(err.Error(), "start InfluxDB") {
			t.Errorf("%d: %v, want %q", x.status, err, x.want)
		}
		all := record.Deliveries()
		if d := all[len(all)-1]; len(all) != i+1 || d.Dropped != 0 || d.Left != 1 || d.Points != 1 ||
			d.Refused != x.status {
			t.Errorf("%d: delivery %d is %+v, want its one point left", x.status, len(all), d)
		}
	}
}

// TestReplayDuringARun proves that a run can be replayed while it is running and after its end. InfluxDB then has
// each point once.
func TestReplayDuringARun(t *testing.T) {
	points := map[string]int{}
	db := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		for lines := bufio.NewScanner(body); lines.Scan(); {
			points[lines.Text()]++
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer db.Close()
	root := t.TempDir()
	record, err := runs.Create(root, plan.Run{ID: "run-1", Name: "quick", Repeat: 1, Started: time.Now().UTC()})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "influx.json")
	if err := os.WriteFile(file, []byte(`{"url": "`+db.URL+`", "org": "o", "bucket": "b", "token": "t"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 2, 2} { // points of the beginning and of the end
		if i == 1 {
			end := runs.TimelineEvent{At: time.Now(), Kind: runs.TimelineEnd, Text: "done"}
			if err := record.AddEvent(end); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		c := runsReplay()
		c.SetArgs([]string{"--runs", root, "--influx", file, "run-1"})
		c.SetOut(&out)
		if err := c.ExecuteContext(t.Context()); err != nil {
			t.Error(err)
		}
		if len(points) != want || !strings.Contains(out.String(), fmt.Sprintf("InfluxDB: %d points written", want)) {
			t.Errorf("replay %d: InfluxDB has %d points, want %d; output %q", i+1, len(points), want, out.String())
		}
		all := record.Deliveries()
		if d := all[len(all)-1]; len(all) != i+1 || !d.Replayed || d.Written != int64(want) || d.Left != 0 {
			t.Errorf("replay %d: delivery %d is %+v", i+1, len(all), d)
		}
	}
}
