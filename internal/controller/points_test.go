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

// database stores points like InfluxDB, but rejects the first requests.
type database struct {
	refuse int // number of requests

	mu    sync.Mutex
	lines []string
}

func (d *database) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.refuse--
	refused := d.refuse >= 0
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

// with returns the number of lines that contain all of these texts.
func (d *database) with(texts ...string) (n int) {
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

// sinking sets the sink of the lab's next run.
func (l *lab) sinking(d *database) {
	l.t.Helper()
	l.points = l.sinkTo(d)()
}

// TestPointsOfARun proves that the points of a run are delivered, and that the delivery is in the record.
func TestPointsOfARun(t *testing.T) {
	t.Parallel()
	l, d := newLab(t, "a1", "a2", "a3", "a4"), &database{}
	l.sinking(d)
	run := aRun(nil, func(c *plan.Cell) { c.Broker.Driver = "nothing" })
	w := l.run(run, nil, nil)
	dir, err := runs.Open(w.root, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	all := dir.Deliveries()
	if len(all) != 1 || all[0].Dropped != 0 || all[0].Written != all[0].Points || all[0].Written == 0 ||
		all[0].End != string(wire.EndDone) {
		t.Errorf("delivered %+v", all)
	}
	for _, o := range w.outcomes() {
		if d.with("lockstep_event,", "kind=task-start", "cell="+o.Cell,
			fmt.Sprintf(" %d", o.Started.UnixNano())) != 1 ||
			d.with("lockstep_outcome,", "cell="+o.Cell, "verdict="+string(o.Verdict)) != 1 {
			t.Errorf("the start and the outcome of %s did not arrive exactly once", o.Task)
		}
	}
	for agent, role := range map[string]string{"a1": "publisher", "a2": "publisher", "a3": "consumer",
		"a4": "consumer"} {
		if d.with("lockstep_window,agent="+agent+",", "role="+role) == 0 ||
			d.with("lockstep_window,agent="+agent+",") != d.with("lockstep_window,agent="+agent+",", "role="+role) {
			t.Errorf("%s is not written as a %s", agent, role)
		}
	}
	if d.with("kind=host-cores") != 0 {
		t.Error("what an outcome keeps for judging it again is written as an event")
	}
	if d.with("run="+run.ID) != int(all[0].Written) {
		t.Errorf("%d points arrived, and the record has %d written", d.with("run="+run.ID), all[0].Written)
	}
	l.replays(w.root, run.ID, d)
}

// last returns the stored points: the last line per series and time.
func (d *database) last() map[string]string {
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

// replays checks that the points computed from a record are the same as those that were written live.
func (l *lab) replays(root, run string, live *database) {
	l.t.Helper()
	dir, err := runs.Open(root, run)
	if err != nil {
		l.t.Fatal(err)
	}
	again := &database{}
	l.sinking(again)
	if d, err := controller.Replay(l.t.Context(), dir, l.points, time.Minute); err != nil || d.Left != 0 ||
		d.Written == 0 {
		l.t.Errorf("delivered %+v: %v", d, err)
	}
	want, got := live.last(), again.last()
	for key, line := range want {
		if got[key] != line {
			l.t.Errorf("made of the record again\n%s\nlive\n%s", got[key], line)
		}
	}
	for key, line := range got {
		if want[key] == "" {
			l.t.Errorf("made of the record again, and not there live:\n%s", line)
		}
	}
}

// TestPointsOfAttempts proves that a repeated task has points of both attempts and an outcome of the second. A copy
// that is made from the beginning, as of a fleet's run, does not count the first attempt twice.
func TestPointsOfAttempts(t *testing.T) {
	t.Parallel()
	l, d := newLabOn(t, wire.ServerConfig{Listen: "127.0.0.1:0", Open: true}, "a1", "a2", "a3", "a4"), &database{}
	l.await(4)
	l.sinking(d)
	run := aRun(long)
	root := t.TempDir()
	w := l.runInto(root, run, nil, func(p controller.Progress) {
		if p.Kind == liveMetrics {
			if err := l.client.Cancel(t.Context(), run.ID, ""); err != nil {
				t.Error(err)
			}
		}
	})
	if w.end.Reason != wire.EndInterrupted || d.with("kind=task-stop", "attempt=1", "was aborted") != 1 ||
		d.with("lockstep_window,", "attempt=1") == 0 {
		t.Fatalf("the first attempt ended with %+v, or its points are missing", w.end)
	}
	run.Cells[0].Workload.Measure = plan.Duration(1e9)
	l.sinking(d)
	w = l.runInto(root, run, nil, nil)
	outcomes := 0
	for key := range d.last() {
		if strings.HasPrefix(key, "lockstep_outcome,") {
			outcomes++
		}
	}
	if len(w.outcomes()) != 1 || d.with("lockstep_outcome,", "attempt=2") == 0 || outcomes != 1 ||
		d.with("lockstep_window,", "attempt=2") == 0 || d.with("attempt=3") != 0 {
		t.Errorf("%d outcomes; %d are written, and of the second attempt %d windows", len(w.outcomes()), outcomes,
			d.with("lockstep_window,", "attempt=2"))
	}
	dir, err := runs.Open(root, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if all := dir.Deliveries(); len(all) != 3 || all[0].Replayed || all[1].Replayed || !all[2].Replayed ||
		all[2].Left != 0 {
		t.Errorf("delivered %+v, want two parts of the run and a replay at the end of the second", all)
	}
	l.replays(root, run.ID, d)
	if told := attempts(root, run.ID); len(told) != 1 {
		t.Errorf("the record has %q, want one interrupted attempt", told)
	}
}

// attempts returns the warnings about attempts in the only outcome.
func attempts(root, run string) (found []string) {
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
	l := newLabOn(t, wire.ServerConfig{Listen: "127.0.0.1:0", Open: true}, "a1", "a2", "a3", "a4")
	l.stop()
	l.wg.Wait()
	copied, followed := &database{}, &database{refuse: 1}
	l.config.Copies, l.config.Points = t.TempDir(), l.sinkTo(copied)
	l.control()
	l.await(4)
	l.sinking(followed)
	run := aRun(nil)
	w := l.run(run, nil, nil)
	if o := w.outcomes(); w.end.Ran != 1 || len(o) != 1 || o[0].Verdict != plan.Valid {
		t.Fatalf("%+v, %+v", w.end, o)
	}
	dir, err := runs.Open(w.root, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	all := dir.Deliveries()
	if len(all) != 2 || all[0].Dropped == 0 || all[0].Replayed || !all[1].Replayed || all[1].Left != 0 ||
		all[1].Written != all[1].Points {
		t.Errorf("delivered %+v, want points that were dropped and a replay of all", all)
	}
	l.copied(run.ID)
	if got, want := followed.last(), copied.last(); !maps.Equal(got, want) || len(want) == 0 {
		t.Errorf("InfluxDB has %d points, and %d of the copy without drops, or others", len(got), len(want))
	}
}

// copied waits until the leader's copy of a run is complete.
func (l *lab) copied(run string) {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		s, err := l.client.RunState(l.t.Context(), run)
		if err == nil && s.Copied {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("run %s is not copied: %+v, %v", run, s, err)
		}
	}
}

// sinkTo returns a function that opens sinks for a database.
func (l *lab) sinkTo(d *database) func() *sink.Sink {
	l.t.Helper()
	server := httptest.NewServer(d)
	l.t.Cleanup(server.Close)
	target, err := sink.Resolve(plan.Influx{URL: server.URL, Bucket: "b", Token: "t"}, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return func() *sink.Sink { return sink.Open(target, sink.Tuning{}, "test", l.log()) }
}

// TestTheControllersPoints proves that a controller with a sink writes the points of a run without a follower, and that
// these are the same points as a follower's: two writers do not conflict.
func TestTheControllersPoints(t *testing.T) {
	t.Parallel()
	l := newLabOn(t, wire.ServerConfig{Listen: "127.0.0.1:0", Open: true}, "a1", "a2", "a3", "a4")
	l.stop()
	l.wg.Wait()
	copied, followed := &database{}, &database{}
	l.config.Copies, l.config.Points = t.TempDir(), l.sinkTo(copied)
	l.control()
	l.await(4)
	l.points = l.sinkTo(followed)()
	run := aRun(nil)
	if w := l.run(run, nil, nil); w.end.Ran != 1 {
		t.Fatalf("%+v", w.end)
	}
	l.copied(run.ID)
	if got, want := copied.last(), followed.last(); !maps.Equal(got, want) || len(want) == 0 {
		t.Errorf("the controller has written %d points, and who follows %d, or others", len(got), len(want))
	}
	dir, err := runs.Open(l.config.Copies, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if all := dir.Deliveries(); len(all) != 1 || all[0].Dropped != 0 || all[0].Written != all[0].Points {
		t.Errorf("delivered %+v", all)
	}
}
