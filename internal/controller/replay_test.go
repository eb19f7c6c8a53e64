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
	status func(n int64) int
	delay  time.Duration // of each response
	asked  atomic.Int64

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
	status := m.status(m.asked.Add(1))
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

// recorded returns an ended run, and a recorder whose sink has received its points.
func recorded(t *testing.T, points *sink.Sink) *recorder {
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

// TestReplayWaitsToItsEnd proves that a replay waits as long as InfluxDB accepts points, longer than the end of a run
// does, and writes each point once.
func TestReplayWaitsToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := &memoryInflux{status: always(http.StatusNoContent)}
		points := live.open(t, sink.Tuning{}, io.Discard)
		f := recorded(t, points)
		points.Close(t.Context())

		slow := &memoryInflux{status: func(n int64) int {
			if n%10 == 0 {
				return http.StatusNoContent
			}
			return http.StatusServiceUnavailable
		}}
		to := slow.open(t, sink.Tuning{Batch: 1, Flush: time.Second, MaxPause: time.Second}, io.Discard)
		for range 2 {
			began := time.Now()
			d, err := Replay(t.Context(), f.dir, to, 30*time.Second)
			if err != nil || d.Written != recordedPoints || d.Left != 0 || !d.Replayed ||
				time.Since(began) < time.Minute {
				t.Errorf("after %v delivered %+v, want all after more than a minute: %v", time.Since(began), d, err)
			}
			if !maps.Equal(slow.points, live.points) || len(live.points) != recordedPoints {
				t.Errorf("the replay made %d points, the run %d, or others", len(slow.points), len(live.points))
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
		fallsShort   bool          // the run does not end
		resumed      bool          // an earlier process has followed the run
		live, replay int64         // written points; -1: no replay
		took         time.Duration // duration of the replay
		log          []string      // the only messages
	}{
		"taken": {status: always(http.StatusNoContent), live: recordedPoints, replay: -1},
		"resumed": {status: always(http.StatusNoContent), live: recordedPoints, replay: recordedPoints, resumed: true,
			took: time.Second, log: []string{"replay to InfluxDB complete"}},
		"queue full": {status: always(http.StatusNoContent), tune: sink.Tuning{Queue: 3}, live: 3,
			replay: recordedPoints, took: 4 * time.Second,
			log: []string{dropped, "dropped=5 points=8", "queue full:5", command, "replay to InfluxDB complete"}},
		"back in time": {status: func(n int64) int {
			if n < 3 {
				return http.StatusServiceUnavailable
			}
			return http.StatusNoContent
		}, replay: recordedPoints, took: 1250 * time.Millisecond, log: []string{dropped, command, "replay to InfluxDB complete"}},
		"away": {status: always(http.StatusBadGateway), took: replayPatience,
			log: []string{dropped, "dropped=8", command, failed, "left=8 points=8", "HTTP 502"}},
		"silent": {status: always(0), took: replayPatience,
			log: []string{dropped, command, failed, "left=8", "no response"}},
		"refused": {status: always(http.StatusUnauthorized), took: time.Second,
			log: []string{dropped, command, failed, "rejected: 401 Unauthorized:8"}},
		"not at its end": {status: always(http.StatusBadGateway), fallsShort: true, replay: -1,
			log: []string{dropped, command}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				db := &memoryInflux{status: c.status}
				points := db.open(t, c.tune, &log)
				f := recorded(t, points)
				f.resumed = c.resumed
				d := points.Close(t.Context())
				before := time.Now()
				err := f.deliver(t.Context(), d, !c.fallsShort)
				if took := time.Since(before); err != nil || took != c.took {
					t.Errorf("the replay took %v, want %v: %v", took, c.took, err)
				}
				want := []int64{c.live, c.replay}
				if c.replay < 0 {
					want = want[:1]
				}
				all := f.dir.Deliveries()
				if len(all) != len(want) {
					t.Fatalf("%d deliveries, want %d: %+v", len(all), len(want), all)
				}
				for i, d := range all {
					if d.Replayed != (i == 1) || d.Points != recordedPoints || d.Written != want[i] ||
						d.Written+d.Dropped+d.Left != d.Points || d.Replayed != (d.Dropped == 0 && i == 1) {
						t.Errorf("delivery %d is %+v, want %d points written", i+1, d, want[i])
					}
				}
				if n := want[len(want)-1]; int64(len(db.points)) != n {
					t.Errorf("InfluxDB has %d points, want %d: each once", len(db.points), n)
				}
				for _, text := range c.log {
					if !strings.Contains(log.String(), text) {
						t.Errorf("the log has no %q:\n%s", text, &log)
					}
				}
				if len(c.log) == 0 && log.Len() > 0 {
					t.Errorf("the log has\n%s", &log)
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
		f := recorded(t, points)
		d := points.Close(t.Context())
		before := time.Now()
		if err := f.deliver(t.Context(), d, true); err != nil || time.Since(before) != replayTimeout {
			t.Errorf("after %v: %v, want %v", time.Since(before), err, replayTimeout)
		}
		if all := f.dir.Deliveries(); len(all) != 2 || all[1].Written != 7 || all[1].Left != 1 {
			t.Errorf("delivered %+v, want seven points of the replay written, and one left", all)
		}
		if !strings.Contains(log.String(), "not complete after 30s") {
			t.Errorf("the log is\n%s", &log)
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
	late := errors.New("replay not complete after 30s")
	for name, c := range map[string]struct {
		prepare func(*testing.T, *recorder) context.Context
		cause   string
	}{
		"timeout":     {prepare: ended(late), cause: late.Error()},
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
				f := recorded(t, points)
				points.Close(t.Context())
				d, err := Replay(c.prepare(t, f), f.dir, points, time.Minute)
				if err == nil || !d.Incomplete || d.Dropped > 0 || !strings.Contains(d.Cause, c.cause) {
					t.Errorf("delivered %+v, want an incomplete replay: %v", d, err)
				}
				all := f.dir.Deliveries()
				if len(all) != 1 || !all[0].Incomplete || all[0].Cause != d.Cause {
					t.Errorf("stored %+v, want the incomplete replay", all)
				}
				text := report.Delivered("run-1", all)
				if !strings.Contains(text, d.Cause+"; ") || !strings.HasSuffix(text, "; run: ctl runs replay run-1") {
					t.Errorf("the summary is %q", text)
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
		f := recorded(t, points)
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
			t.Errorf("after %v: %v, want the end after 1 s", time.Since(before), err)
		}
		all := f.dir.Deliveries()
		if len(all) != 2 || all[1].Left == 0 || all[1].Cause != "interrupted" || all[1].Incomplete {
			t.Errorf("delivered %+v, want a replay that was interrupted", all)
		}
	})
}

// TestReplayDuringTheRun proves that the summary counts points once that both a replay during the run and the live sink
// have written.
func TestReplayDuringTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &memoryInflux{status: always(http.StatusNoContent)}
		points := db.open(t, sink.Tuning{}, io.Discard)
		f := recorded(t, points)
		time.Sleep(time.Minute)
		if d, err := Replay(t.Context(), f.dir, points, time.Minute); err != nil || d.Written != recordedPoints {
			t.Fatalf("delivered %+v, want all points so far: %v", d, err)
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
			t.Errorf("the summary is %q, want %q", text, want)
		}
		if len(db.points) != recordedPoints+more {
			t.Errorf("InfluxDB has %d points, want %d", len(db.points), recordedPoints+more)
		}
	})
}
