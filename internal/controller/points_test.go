package controller_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sink"
	"example.org/lockstep/lockstep/internal/wire"
)

// fakeInflux stores points like InfluxDB, but rejects the first requests.
type fakeInflux struct {
	reject int // number of requests

	mu    sync.Mutex
	lines []string
}

func (d *fakeInflux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.reject--
	refused := d.reject >= 0
	d.mu.Unlock()
	if refused {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if body, err := gzip.NewReader(r.Body); err == nil {
		text, _ := io.ReadAll(body)
		d.mu.Lock()
		d.lines = append(d.lines, strings.Split(string(text), "\n")...)
		d.mu.Unlock()
	}
	w.WriteHeader(http.StatusNoContent)
}

// count returns the number of lines that contain all of these texts.
func (d *fakeInflux) count(texts ...string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, line := range d.lines {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			n++
		}
	}
	return n
}

// setSink sets the sink of the lab's next run.
func (l *localFleet) setSink(d *fakeInflux) {
	l.t.Helper()
	l.points = l.sinkTo(d)()
}

// TestPointsOfARun proves that the points of a run are delivered, and that the delivery is in the record.
func TestPointsOfARun(t *testing.T) {
	t.Parallel()
	l, d := newLocalFleet(t, "a1", "a2", "a3", "a4"), &fakeInflux{}
	l.setSink(d)
	run := newRun(nil, func(c *plan.Cell) { c.Broker.Driver = "nothing" })
	w := l.run(run, nil, nil)
	dir, err := runs.Open(w.root, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	all := dir.Deliveries()
	if len(all) != 1 || all[0].Dropped != 0 || all[0].Written != all[0].Points || all[0].Written == 0 ||
		all[0].End != string(wire.EndDone) {
		t.Errorf("deliveries: got %+v, want one with all points written", all)
	}
	for _, o := range w.outcomes() {
		if d.count("lockstep_event,", "kind=task-start", "cell="+o.Cell,
			fmt.Sprintf(" %d", o.Started.UnixNano())) != 1 ||
			d.count("lockstep_outcome,", "cell="+o.Cell, "verdict="+string(o.Verdict)) != 1 {
			t.Errorf("task %s: the start or the outcome was not written exactly once", o.Task)
		}
	}
	for agent, role := range map[string]string{"a1": "publisher", "a2": "publisher", "a3": "consumer",
		"a4": "consumer"} {
		if d.count("lockstep_window,agent="+agent+",", "role="+role) == 0 ||
			d.count("lockstep_window,agent="+agent+",") != d.count("lockstep_window,agent="+agent+",", "role="+role) {
			t.Errorf("agent %s: got points with another role, want %s", agent, role)
		}
	}
	if d.count("kind=host-cores") != 0 {
		t.Error("got points of kind host-cores, want none: these events are only for judging again")
	}
	if d.count("run="+run.ID) != int(all[0].Written) {
		t.Errorf("points in InfluxDB: got %d, want %d as in the record", d.count("run="+run.ID), all[0].Written)
	}
	l.checkReplay(w.root, run.ID, d)
}

// storedPoints returns the stored points: the last line per series and time.
func (d *fakeInflux) storedPoints() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	stored := map[string]string{}
	for _, line := range d.lines {
		if line == "" {
			continue
		}
		series := 0
		for series < len(line) && (line[series] != ' ' || line[series-1] == '\\') {
			series++
		}
		stored[line[:series]+line[strings.LastIndexByte(line, ' '):]] = line
	}
	return stored
}

// checkReplay checks that the points computed from a record are the same as those that were written live.
func (l *localFleet) checkReplay(root, run string, live *fakeInflux) {
	l.t.Helper()
	dir, err := runs.Open(root, run)
	if err != nil {
		l.t.Fatal(err)
	}
	again := &fakeInflux{}
	l.setSink(again)
	if d, err := controller.Replay(l.t.Context(), dir, l.points, time.Minute); err != nil || d.Left != 0 ||
		d.Written == 0 {
		l.t.Errorf("replay: got %+v, error %v, want all points written", d, err)
	}
	want, got := live.storedPoints(), again.storedPoints()
	for key, line := range want {
		if got[key] != line {
			l.t.Errorf("replayed point: got\n%s\nwant as written live\n%s", got[key], line)
		}
	}
	for key, line := range got {
		if want[key] == "" {
			l.t.Errorf("replayed point that was not written live:\n%s", line)
		}
	}
}

// TestPointsOfAttempts proves that a repeated task has points of both attempts and an outcome of the second. A copy
// that is made from the beginning, as of a fleet's run, does not count the first attempt twice.
func TestPointsOfAttempts(t *testing.T) {
	t.Parallel()
	l, d := newLocalFleetOn(t, wire.ServerConfig{Listen: "127.0.0.1:0", Open: true}, "a1", "a2", "a3",
		"a4"), &fakeInflux{}
	l.awaitAgents(4)
	l.setSink(d)
	run := newRun(longCell)
	root := t.TempDir()
	w := l.runInto(root, run, nil, func(p controller.Progress) {
		if p.Kind == liveMetrics {
			if err := l.client.Cancel(t.Context(), run.ID, ""); err != nil {
				t.Error(err)
			}
		}
	})
	if w.end.Reason != wire.EndInterrupted || d.count("kind=task-stop", "attempt=1", "was aborted") != 1 ||
		d.count("lockstep_window,", "attempt=1") == 0 {
		t.Fatalf("first attempt: got end %+v, or its points are missing, want interrupted", w.end)
	}
	run.Cells[0].Workload.Measure = plan.Duration(1e9)
	l.setSink(d)
	w = l.runInto(root, run, nil, nil)
	outcomes := 0
	for key := range d.storedPoints() {
		if strings.HasPrefix(key, "lockstep_outcome,") {
			outcomes++
		}
	}
	if len(w.outcomes()) != 1 || d.count("lockstep_outcome,", "attempt=2") == 0 || outcomes != 1 ||
		d.count("lockstep_window,", "attempt=2") == 0 || d.count("attempt=3") != 0 {
		t.Errorf("got %d outcomes, %d written outcomes, %d windows of the second attempt, want 1, 1, some",
			len(w.outcomes()), outcomes, d.count("lockstep_window,", "attempt=2"))
	}
	dir, err := runs.Open(root, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if all := dir.Deliveries(); len(all) != 3 || all[0].Replayed || all[1].Replayed || !all[2].Replayed ||
		all[2].Left != 0 {
		t.Errorf("deliveries: got %+v, want two parts of the run and a replay at the end of the second", all)
	}
	l.checkReplay(root, run.ID, d)
	if reported := attemptWarnings(root, run.ID); len(reported) != 1 {
		t.Errorf("warnings about attempts: got %q, want one interrupted attempt", reported)
	}
}

// attemptWarnings returns the warnings about attempts in the only outcome.
func attemptWarnings(root, run string) (found []string) {
	dir, err := runs.Open(root, run)
	if err != nil {
		return []string{err.Error()}
	}
	outcomes, _ := dir.Outcomes()
	for _, o := range outcomes {
		for _, w := range o.Warnings {
			if strings.HasPrefix(w, "attempt ") {
				found = append(found, w)
			}
		}
	}
	return found
}

// TestDroppedPointsAreReplayed proves that points that InfluxDB rejects during a run are dropped, and that after the
// run InfluxDB has the same points as without drops.
func TestDroppedPointsAreReplayed(t *testing.T) {
	t.Parallel()
	l := newLocalFleetOn(t, wire.ServerConfig{Listen: "127.0.0.1:0", Open: true}, "a1", "a2", "a3", "a4")
	l.cancelController()
	l.controllers.Wait()
	copied, followed := &fakeInflux{}, &fakeInflux{reject: 1}
	l.config.Copies, l.config.Points = t.TempDir(), l.sinkTo(copied)
	l.startController()
	l.awaitAgents(4)
	l.setSink(followed)
	run := newRun(nil)
	w := l.run(run, nil, nil)
	if o := w.outcomes(); w.end.Ran != 1 || len(o) != 1 || o[0].Verdict != plan.Valid {
		t.Fatalf("got end %+v, outcomes %+v, want one valid task", w.end, o)
	}
	dir, err := runs.Open(w.root, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	all := dir.Deliveries()
	if len(all) != 2 || all[0].Dropped == 0 || all[0].Replayed || !all[1].Replayed || all[1].Left != 0 ||
		all[1].Written != all[1].Points {
		t.Errorf("deliveries: got %+v, want one with dropped points and a replay of all", all)
	}
	l.awaitCopy(run.ID)
	if got, want := followed.storedPoints(), copied.storedPoints(); !maps.Equal(got, want) || len(want) == 0 {
		t.Errorf("InfluxDB has %d points, want the same %d points as the copy without drops", len(got), len(want))
	}
}

// awaitCopy waits until the leader's copy of a run is complete.
func (l *localFleet) awaitCopy(run string) {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		s, err := l.client.RunState(l.t.Context(), run)
		if err == nil && s.Copied {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("run %s was not copied: %+v, error %v", run, s, err)
		}
	}
}

// sinkTo returns a function that opens sinks for a database.
func (l *localFleet) sinkTo(d *fakeInflux) func() *sink.Sink {
	l.t.Helper()
	server := httptest.NewServer(d)
	l.t.Cleanup(server.Close)
	target, err := sink.Resolve(plan.Influx{URL: server.URL, Bucket: "b", Token: "t"}, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return func() *sink.Sink { return sink.Open(target, sink.Tuning{}, "test", l.log()) }
}

// TestPointsOfTheController proves that a controller with a sink writes the points of a run without a follower, and
// that these points are the same as those of a follower.
func TestPointsOfTheController(t *testing.T) {
	t.Parallel()
	l := newLocalFleetOn(t, wire.ServerConfig{Listen: "127.0.0.1:0", Open: true}, "a1", "a2", "a3", "a4")
	l.cancelController()
	l.controllers.Wait()
	copied, followed := &fakeInflux{}, &fakeInflux{}
	l.config.Copies, l.config.Points = t.TempDir(), l.sinkTo(copied)
	l.startController()
	l.awaitAgents(4)
	l.points = l.sinkTo(followed)()
	run := newRun(nil)
	if w := l.run(run, nil, nil); w.end.Ran != 1 {
		t.Fatalf("end of the run: got %+v, want 1 task", w.end)
	}
	l.awaitCopy(run.ID)
	if got, want := copied.storedPoints(), followed.storedPoints(); !maps.Equal(got, want) || len(want) == 0 {
		t.Errorf("points of the controller: got %d, want the same %d points as those of the follower", len(got),
			len(want))
	}
	dir, err := runs.Open(l.config.Copies, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if all := dir.Deliveries(); len(all) != 1 || all[0].Dropped != 0 || all[0].Written != all[0].Points {
		t.Errorf("deliveries: got %+v, want one with all points written", all)
	}
}
