package controller

import (
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/results"
	"lockstep/internal/sink"
)

// TestReplayWaitsToItsEnd: an InfluxDB that takes the last points later than the end of a run would wait for them is waited for.
func TestReplayWaitsToItsEnd(t *testing.T) {
	var asked atomic.Int64
	db := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 20 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer db.Close()
	record, err := results.Create(t.TempDir(), plan.Run{ID: "run-1", Name: "quick", Repeat: 1, Started: time.Now().UTC()})
	if err != nil {
		t.Fatal(err)
	}
	target, err := sink.Resolve(plan.Influx{URL: db.URL, Org: "o", Bucket: "b", Token: "t"}, os.LookupEnv, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	points := sink.Open(target, sink.Tuning{Linger: time.Millisecond, Flush: time.Millisecond, LeastPause: 5 * time.Millisecond, MostPause: 20 * time.Millisecond}, "test", nil)
	failed := Replay(t.Context(), record, points)
	if d := points.Close(t.Context()); failed != nil || d.Dropped != 0 || d.Written != 1 {
		t.Errorf("delivered %+v, want all: %v", d, failed)
	}
}
