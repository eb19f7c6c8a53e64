package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/sink"
)

// memoryInflux is an in-memory InfluxDB. Request n, from 1, gets the n-th status, and points are stored with status
// 204. Status 0 is no response.
type memoryInflux struct {
	status   func(n int64) int
	delay    time.Duration // of each response
	requests atomic.Int64

	mu     sync.Mutex // two sinks may write at the same time
	points map[string]bool
}

func (m *memoryInflux) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	body, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(m.delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	status := m.status(m.requests.Add(1))
	switch status {
	case 0:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case http.StatusNoContent:
		m.mu.Lock()
		defer m.mu.Unlock()
		for line := range strings.Lines(string(text)) {
			m.points[strings.TrimSpace(line)] = true
		}
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}, nil
}

func (m *memoryInflux) open(t *testing.T, tune sink.Tuning, log io.Writer) *sink.Sink {
	t.Helper()
	m.points = map[string]bool{}
	target, err := sink.Resolve(plan.Influx{URL: "http://influx", Org: "o", Bucket: "b", Token: "t"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tune.Transport = m
	return sink.Open(target, tune, "test", slog.New(slog.NewTextHandler(log, nil)))
}

func always(status int) func(int64) int { return func(int64) int { return status } }

// newRecorder returns an ended run, and a recorder whose sink has received its points.
func newRecorder(t *testing.T, points *sink.Sink) *recorder {
	t.Helper()
	run := plan.Run{ID: "run-1", Name: "quick", Repeat: 3, Started: time.Now().UTC(),
		Cells: []plan.Cell{{ID: "c0ffee", Workload: plan.Default(),
			Broker: plan.Broker{Name: "b", Driver: "d", Options: []byte("{}")}}}}
	dir, err := runs.Create(t.TempDir(), run)
	if err != nil {
		t.Fatal(err)
	}
	f := &recorder{dir: dir, root: "copies", points: points, watch: func(Progress) {}}
	points.Begin(run)
	at := run.Started
	for _, task := range run.Tasks() {
		m := runs.TimelineEvent{At: at.Add(time.Second), Kind: runs.TimelineStart, Task: task.ID, Name: "first",
			Attempt: 1}
		stop := runs.TimelineEvent{At: at.Add(2 * time.Second), Kind: runs.TimelineGiveUp, Task: task.ID, Name: "first",
			Text: "an agent was lost"}
		if err := errors.Join(dir.AddEvent(m), dir.AddEvent(stop)); err != nil {
			t.Fatal(err)
		}
		points.Start(startOf(task, m))
		points.GiveUp(task.ID, stop.At, stop.Text)
		at = stop.At
	}
	if err := dir.AddEvent(runs.TimelineEvent{At: at, Kind: runs.TimelineEnd, Text: "done"}); err != nil {
		t.Fatal(err)
	}
	points.End(at, "done")
	return f
}

const recordedPoints = 8 // two events for each of three tasks, and two of the run

// TestReplayWaitsToItsEnd proves that a replay continues as long as InfluxDB accepts points, and writes each point
// once.
func TestReplayWaitsToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := &memoryInflux{status: always(http.StatusNoContent)}
		points := live.open(t, sink.Tuning{}, io.Discard)
		f := newRecorder(t, points)
		points.Close(t.Context())

		slow := &memoryInflux{status: func(n int64) int {
			if n%10 == 0 {
				return http.StatusNoContent
			}
			return http.StatusServiceUnavailable
		}}
		to := slow.open(t, sink.Tuning{Batch: 1, Flush: time.Second, MaxPause: time.Second}, io.Discard)
		for range 2 {
			begin := time.Now()
			d, err := Replay(t.Context(), f.dir, to, 30*time.Second)
			if err != nil || d.Written != recordedPoints || d.Left != 0 || !d.Replayed ||
				time.Since(begin) < time.Minute {
				t.Errorf("replay: got %+v after %v, error %v, want all points after at least 1 minute", d,
					time.Since(begin), err)
			}
			if !maps.Equal(slow.points, live.points) || len(live.points) != recordedPoints {
				t.Errorf("replayed points: got %d, want the same %d points as the run", len(slow.points),
					len(live.points))
			}
		}
	})
}

// TestReplayAtTheEnd proves that one replay at the end of the run writes dropped points. If it fails, a warning has the
// count and the command.
func TestReplayAtTheEnd(t *testing.T) {
	const dropped, failed, command = "points for InfluxDB dropped", "replay to InfluxDB incomplete",
		`command="ctl runs replay --runs copies run-1"`
	for name, c := range map[string]struct {
		status       func(n int64) int
		tune         sink.Tuning
		unfinished   bool          // the run does not end
		resumed      bool          // an earlier process has followed the run
		live, replay int64         // written points; -1: no replay
		duration     time.Duration // duration of the replay
		log          []string      // the only messages
	}{
		"all accepted": {status: always(http.StatusNoContent), live: recordedPoints, replay: -1},
		"resumed": {status: always(http.StatusNoContent), live: recordedPoints, replay: recordedPoints, resumed: true,
			duration: time.Second, log: []string{"replay to InfluxDB complete"}},
		"queue full": {status: always(http.StatusNoContent), tune: sink.Tuning{Queue: 3}, live: 3,
			replay: recordedPoints, duration: 4 * time.Second,
			log: []string{dropped, "dropped=5 points=8", "queue full:5", command, "replay to InfluxDB complete"}},
		"unavailable, then available": {status: func(n int64) int {
			if n < 3 {
				return http.StatusServiceUnavailable
			}
			return http.StatusNoContent
		}, replay: recordedPoints, duration: 1250 * time.Millisecond, log: []string{dropped, command,
			"replay to InfluxDB complete"}},
		"unavailable": {status: always(http.StatusBadGateway), duration: replayPatience,
			log: []string{dropped, "dropped=8", command, failed, "left=8 points=8", "HTTP 502"}},
		"no response": {status: always(0), duration: replayPatience,
			log: []string{dropped, command, failed, "left=8", "no response"}},
		"rejected": {status: always(http.StatusUnauthorized), duration: time.Second,
			log: []string{dropped, command, failed, "rejected: 401 Unauthorized:8"}},
		"run not ended": {status: always(http.StatusBadGateway), unfinished: true, replay: -1,
			log: []string{dropped, command}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				db := &memoryInflux{status: c.status}
				points := db.open(t, c.tune, &log)
				f := newRecorder(t, points)
				f.resumed = c.resumed
				d := points.Close(t.Context())
				before := time.Now()
				err := f.deliver(t.Context(), d, !c.unfinished)
				if duration := time.Since(before); err != nil || duration != c.duration {
					t.Errorf("duration of the replay: got %v, error %v, want %v", duration, err, c.duration)
				}
				want := []int64{c.live, c.replay}
				if c.replay < 0 {
					want = want[:1]
				}
				all := f.dir.Deliveries()
				if len(all) != len(want) {
					t.Fatalf("got %d deliveries, want %d: %+v", len(all), len(want), all)
				}
				for i, d := range all {
					if d.Replayed != (i == 1) || d.Points != recordedPoints || d.Written != want[i] ||
						d.Written+d.Dropped+d.Left != d.Points || d.Replayed != (d.Dropped == 0 && i == 1) {
						t.Errorf("delivery %d: got %+v, want %d points written", i+1, d, want[i])
					}
				}
				if n := want[len(want)-1]; int64(len(db.points)) != n {
					t.Errorf("points in InfluxDB: got %d, want %d", len(db.points), n)
				}
				for _, text := range c.log {
					if !strings.Contains(log.String(), text) {
						t.Errorf("log: want %q, got\n%s", text, &log)
					}
				}
				if len(c.log) == 0 && log.Len() > 0 {
					t.Errorf("log: want no messages, got\n%s", &log)
				}
			})
		})
	}
}

// TestReplayIsLimited proves that a replay at the end of a run ends at its timeout although it makes progress.
func TestReplayIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		db := &memoryInflux{status: always(http.StatusNoContent), delay: 4 * time.Second}
		points := db.open(t, sink.Tuning{Batch: 1, Queue: 4}, &log)
		f := newRecorder(t, points)
		d := points.Close(t.Context())
		before := time.Now()
		if err := f.deliver(t.Context(), d, true); err != nil || time.Since(before) != replayTimeout {
			t.Errorf("duration of the replay: got %v, error %v, want %v", time.Since(before), err, replayTimeout)
		}
		if all := f.dir.Deliveries(); len(all) != 2 || all[1].Written != 7 || all[1].Left != 1 {
			t.Errorf("deliveries: got %+v, want 7 points of the replay written, 1 left", all)
		}
		if !strings.Contains(log.String(), "not complete after 30s") {
			t.Errorf("log: want \"not complete after 30s\", got\n%s", &log)
		}
	})
}

// TestReplayEndsWithItsContext proves that a replay ends with its context although it never waits for InfluxDB. The
// delivery is stored as incomplete, also if no point is left.
func TestReplayEndsWithItsContext(t *testing.T) {
	ended := func(cause error) func(*testing.T, *recorder) context.Context {
		return func(t *testing.T, _ *recorder) context.Context {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			return ctx
		}
	}
	timeout := errors.New("replay not complete after 30s")
	for name, c := range map[string]struct {
		prepare func(*testing.T, *recorder) context.Context
		cause   string
	}{
		"timeout":     {prepare: ended(timeout), cause: timeout.Error()},
		"interrupted": {prepare: ended(nil), cause: "interrupted"},
		"unreadable": {prepare: func(t *testing.T, f *recorder) context.Context {
			timeline := filepath.Join(f.dir.Dir(), "timeline.jsonl")
			if err := errors.Join(os.Remove(timeline), os.Mkdir(timeline, 0o755)); err != nil {
				t.Fatal(err)
			}
			return t.Context()
		}, cause: "read the events of run run-1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &memoryInflux{status: always(http.StatusNoContent)}
				points := db.open(t, sink.Tuning{}, io.Discard)
				f := newRecorder(t, points)
				points.Close(t.Context())
				d, err := Replay(c.prepare(t, f), f.dir, points, time.Minute)
				if err == nil || !d.Incomplete || d.Dropped > 0 || !strings.Contains(d.Cause, c.cause) {
					t.Errorf("replay: got %+v, error %v, want incomplete because of %q", d, err, c.cause)
				}
				all := f.dir.Deliveries()
				if len(all) != 1 || !all[0].Incomplete || all[0].Cause != d.Cause {
					t.Errorf("stored deliveries: got %+v, want the incomplete replay", all)
				}
				text := report.Delivered("run-1", all)
				if !strings.Contains(text, d.Cause+"; ") || !strings.HasSuffix(text, "; run: ctl runs replay run-1") {
					t.Errorf("summary: got %q, want the cause and the command", text)
				}
			})
		})
	}
}

// TestReplayAtTheEndIsInterrupted proves that the end of the recorder's context ends the replay without an error of the
// run.
func TestReplayAtTheEndIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &memoryInflux{status: always(0)}
		points := db.open(t, sink.Tuning{}, io.Discard)
		f := newRecorder(t, points)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f.watch = func(p Progress) {
			if p.Kind == ReplayStarted {
				time.AfterFunc(time.Second, cancel)
			}
		}
		d := points.Close(t.Context())
		before := time.Now()
		if err := f.deliver(ctx, d, true); err != nil || time.Since(before) != time.Second {
			t.Errorf("duration of the replay: got %v, error %v, want 1 s, nil", time.Since(before), err)
		}
		all := f.dir.Deliveries()
		if len(all) != 2 || all[1].Left == 0 || all[1].Cause != "interrupted" || all[1].Incomplete {
			t.Errorf("deliveries: got %+v, want an interrupted replay", all)
		}
	})
}

// TestReplayDuringTheRun proves that the summary counts points once that both a replay during the run and the live sink
// have written.
func TestReplayDuringTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &memoryInflux{status: always(http.StatusNoContent)}
		points := db.open(t, sink.Tuning{}, io.Discard)
		f := newRecorder(t, points)
		time.Sleep(time.Minute)
		if d, err := Replay(t.Context(), f.dir, points, time.Minute); err != nil || d.Written != recordedPoints {
			t.Fatalf("replay: got %+v, error %v, want %d points written", d, err, recordedPoints)
		}
		time.Sleep(time.Minute)
		const more = 3
		for i, task := range f.dir.Plan().Tasks()[:more] {
			points.Start(sink.Start{Task: task, Attempt: 2, At: time.Now().Add(time.Duration(i) * time.Second)})
		}
		if err := f.deliver(t.Context(), points.Close(t.Context()), true); err != nil {
			t.Error(err)
		}
		want := fmt.Sprintf("InfluxDB: %d points written", recordedPoints+more)
		if text := report.Delivered("run-1", f.dir.Deliveries()); !strings.HasPrefix(text, want) {
			t.Errorf("summary: got %q, want %q", text, want)
		}
		if len(db.points) != recordedPoints+more {
			t.Errorf("points in InfluxDB: got %d, want %d", len(db.points), recordedPoints+more)
		}
	})
}
