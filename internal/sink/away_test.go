package sink

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockstep/internal/plan"
)

// spooled opens a sink with a spool.
func spooled(t *testing.T, to string, tune Tuning, path string) *Sink {
	t.Helper()
	s := Open(targetOf(t, to), tune, "test", nil)
	s.Spool(path)
	return s
}

// onDisk are the lines of all spools below path.
func onDisk(t *testing.T, path string) (lines int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(path, "*", "*"+segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil && !os.IsNotExist(err) { // delivered meanwhile
			t.Fatal(err)
		}
		lines += strings.Count(string(text), "\n")
	}
	return lines
}

// TestAwayAndBack: what came while InfluxDB was away is delivered when it is back, in order, and nothing is dropped however small the queue is.
func TestAwayAndBack(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	db := serve(t, func(_ int, w http.ResponseWriter) bool {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return false
		}
		return true
	})
	x, path := newWorld(func(c *plan.Cell) { c.Workload.Measure = plan.Duration(time.Minute) }), filepath.Join(t.TempDir(), "spool")
	x.steady(60 * time.Second)
	tune := quick
	tune.Queue, tune.Batch, tune.Flush = 40, 10, 20*time.Second
	s := spooled(t, db.URL, tune, path)
	s.Begin(x.run)
	s.Start(x.start())
	want := lines(t, x.stream())
	for _, snapshot := range x.snapshots {
		s.Snapshot(snapshot)
		for s.writer.queue.len() > 20 { // disk is faster than a run
			time.Sleep(time.Millisecond)
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if onDisk(t, path) > 0 {
			break
		} else if time.Now().After(end) {
			t.Fatal("nothing is on disk")
		}
	}
	away.Store(false)
	s.Outcome(x.outcome(), Start{})
	s.End(began.Add(21*time.Second), "done")
	d := s.Close(t.Context())
	if d.Written != int64(len(want)) || d.Dropped != 0 || d.Spooled != 0 || d.Retries == 0 {
		t.Errorf("delivered %+v, want all %d", d, len(want))
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if !slices.Equal(db.lines, want) {
		t.Errorf("%d lines came, not the %d in their order", len(db.lines), len(want))
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the spool is still there")
	}
}

// TestAwayToTheEnd: what InfluxDB never took stays on disk, is counted, and goes first when there is another sink for the run and this
// InfluxDB; another is given none of it.
func TestAwayToTheEnd(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	db := serve(t, func(_ int, w http.ResponseWriter) bool {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
		return !away.Load()
	})
	x, path := steadyWorld(), filepath.Join(t.TempDir(), "spool")
	s := spooled(t, db.URL, quick, path)
	feed(x, s)
	d := s.Close(t.Context())
	want := lines(t, x.stream())
	if d.Spooled != int64(len(want)) || d.Points != d.Spooled || d.Dropped != 0 || d.Written != 0 {
		t.Errorf("delivered %+v, want %d on disk", d, len(want))
	}

	other := serve(t, nil)
	if d := spooled(t, other.URL, quick, path).Close(t.Context()); d.Points != 0 || other.asked != 0 {
		t.Errorf("another InfluxDB is given what waits for the first: %+v", d)
	}
	away.Store(false)
	again := spooled(t, db.URL, quick, path)
	feed(x, again)
	d = again.Close(t.Context())
	if d.Written != int64(2*len(want)) || d.Points != d.Written || d.Spooled != 0 {
		t.Errorf("delivered %+v, want what was left, and all again", d)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if !slices.Equal(db.lines, append(slices.Clone(want), want...)) {
		t.Error("what was left did not come first")
	}
}

// TestSpoolFull: a spool that is full keeps what it has; what comes then is dropped and counted.
func TestSpoolFull(t *testing.T) {
	gone := serve(t, func(_ int, w http.ResponseWriter) bool { w.WriteHeader(http.StatusBadGateway); return false })
	tune := quick
	tune.Spool = 5000
	x, path := steadyWorld(), filepath.Join(t.TempDir(), "spool")
	s := spooled(t, gone.URL, tune, path)
	feed(x, s)
	d := s.Close(t.Context())
	if d.Spooled == 0 || d.Why[whySpool] == 0 || d.Points != d.Spooled+d.Dropped {
		t.Errorf("delivered %+v, want some on disk and the others dropped", d)
	}
	kept, err := openSpool(path, targetOf(t, gone.URL), tune.Spool)
	if err != nil {
		t.Fatal(err)
	}
	want := lines(t, x.stream())
	if got := drain(t, kept, 1000); !slices.Equal(got, want[:len(got)]) || int64(len(got)) != d.Spooled {
		t.Errorf("%d lines are kept, not the first %d", len(got), d.Spooled)
	}
}

// TestNoSpool: a place where no file can be made costs the points and not the run.
func TestNoSpool(t *testing.T) {
	gone := serve(t, func(_ int, w http.ResponseWriter) bool { w.WriteHeader(http.StatusBadGateway); return false })
	s := spooled(t, gone.URL, quick, filepath.Join(t.TempDir(), "no", "such", "folder", "spool"))
	feed(steadyWorld(), s)
	if d := s.Close(t.Context()); d.Dropped != d.Points || d.Points == 0 {
		t.Errorf("delivered %+v, want all dropped for want of a disk", d)
	}
}

// TestSpoolBreaks: a disk that takes nothing any more is told of once, not for each batch.
func TestSpoolBreaks(t *testing.T) {
	gone := serve(t, func(_ int, w http.ResponseWriter) bool { w.WriteHeader(http.StatusBadGateway); return false })
	path, tune, told := filepath.Join(t.TempDir(), "spool"), quick, &bytes.Buffer{}
	tune.Batch = 2
	s := Open(targetOf(t, gone.URL), tune, "test", slog.New(slog.NewTextHandler(told, nil)))
	s.Spool(path)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	feed(steadyWorld(), s)
	if d := s.Close(t.Context()); d.Why[whyDisk] != d.Points || d.Points < 20 {
		t.Errorf("delivered %+v, want all dropped for want of a disk", d)
	}
	if n := strings.Count(told.String(), "on disk"); n != 1 {
		t.Errorf("a person is told %d times:\n%s", n, told)
	}
}

// TestRoom: who makes points faster than InfluxDB takes them waits and loses none; one that takes none is given up.
func TestRoom(t *testing.T) {
	feedAll := func(s *Sink) error {
		x := newWorld(func(c *plan.Cell) { c.Workload.Measure = plan.Duration(time.Minute) })
		x.steady(60 * time.Second)
		s.Begin(x.run)
		s.Start(x.start())
		for _, snapshot := range x.snapshots {
			if err := s.Room(t.Context()); err != nil {
				return err
			}
			s.Snapshot(snapshot)
		}
		return nil
	}
	tune := quick
	tune.Queue, tune.Batch = 20, 5
	db := serve(t, nil)
	s := Open(targetOf(t, db.URL), tune, "test", nil)
	if err := feedAll(s); err != nil {
		t.Error(err)
	}
	if d := s.Close(t.Context()); d.Dropped != 0 || d.Written < 100 {
		t.Errorf("delivered %+v, want all", d)
	}
	tune.Patience = 50 * time.Millisecond
	gone := serve(t, func(_ int, w http.ResponseWriter) bool { w.WriteHeader(http.StatusBadGateway); return false })
	s = Open(targetOf(t, gone.URL), tune, "test", nil)
	if err := feedAll(s); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("an InfluxDB that is away is waited for: %v", err)
	}
	s.Close(t.Context())
}

// TestDrain: who has time waits for an InfluxDB that takes long for all, and for one that takes points only after a while.
func TestDrain(t *testing.T) {
	tune := quick
	tune.Batch, tune.Flush = 5, time.Millisecond
	slow := serve(t, func(n int, w http.ResponseWriter) bool {
		time.Sleep(5 * time.Millisecond)
		if n < 10 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return n >= 10
	})
	s := Open(targetOf(t, slow.URL), tune, "test", nil)
	feed(steadyWorld(), s)
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if d := s.Close(t.Context()); d.Written != d.Points || d.Points < 20 {
		t.Errorf("delivered %+v, want all", d)
	}
}
