package record

import (
	"sync"
	"testing"
	"time"
)

// An event belongs to the second of its own time, and to the phase of its message.
func TestRecorderFillsWindows(t *testing.T) {
	c := NewCollector(1500 * time.Millisecond)
	r := c.Recorder()
	const ms = int64(time.Millisecond)
	for _, e := range []struct {
		at       int64
		measured bool
	}{{-500 * ms, false}, {-1, false}, {0, true}, {1, false}, {999 * ms, true}, {1499 * ms, true}, {1500 * ms, true},
		{900 * ms, true}, {2499 * ms, true}} {
		w := r.Window(e.at, e.measured)
		w.Counts[Received]++
		w.Record(EndToEnd, e.at)
	}
	r.Flush()
	windows, _ := c.Take()
	type row struct {
		index    int
		measured bool
		count    int64
	}
	want := []row{{-1, false, 2}, {0, false, 1}, {0, true, 3}, {1, true, 1}, {2, true, 2}}
	if len(windows) != len(want) {
		t.Fatalf("%d windows, want %d: %+v", len(windows), len(want), windows)
	}
	for i, w := range windows {
		if got := (row{w.Index, w.Measured, w.Counts[Received]}); got != want[i] {
			t.Errorf("window %d: %+v, want %+v", i, got, want[i])
		}
		if h := w.Hists[EndToEnd]; h.Count()+h.Negative() != uint64(want[i].count) {
			t.Errorf("window %d: %d samples, want %d", i, h.Count()+h.Negative(), want[i].count)
		}
	}
	if windows[3].Length != 500*ms {
		t.Errorf("the last window of the measurement has %v, want 500ms", time.Duration(windows[3].Length))
	}
}

// Messages of both phases are mixed at the border: they must not cause a new window each time.
func TestRecorderKeepsBothKinds(t *testing.T) {
	c := NewCollector(time.Second)
	r := c.Recorder()
	a, b := r.Window(10, true), r.Window(11, false)
	if a == b || r.Window(12, true) != a || r.Window(13, false) != b {
		t.Error("the windows of one second changed")
	}
	if windows, _ := c.Take(); windows != nil {
		t.Errorf("handed over within a second: %+v", windows)
	}
}

// An idle owner keeps its windows until its next event or Flush. Windows without events are not handed over.
func TestRecorderHandsOverLate(t *testing.T) {
	c := NewCollector(time.Hour)
	r := c.Recorder()
	r.Window(5, true).Counts[Sent]++
	s := r.Set(SetKey{})
	s.Add(7)
	if windows, sets := c.Take(); windows != nil || sets != nil {
		t.Fatalf("handed over early: %+v, %+v", windows, sets)
	}
	r.Window(second, true)
	windows, sets := c.Take()
	if len(windows) != 1 || windows[0].Counts[Sent] != 1 || len(sets) != 1 {
		t.Fatalf("handed over %+v, %+v, want one window and one set", windows, sets)
	}
	r.Flush()
	r.Flush()
	if windows, sets := c.Take(); len(windows) != 0 || sets != nil {
		t.Errorf("handed over %+v, %+v, and nothing happened", windows, sets)
	}
}

// The result of Take belongs to the caller: recycling must not change it.
func TestTakenIsNotRecycled(t *testing.T) {
	c := NewCollector(0)
	r := c.Recorder()
	s := r.Set(SetKey{})
	fill := func(n int64) {
		for i := range n {
			w := r.Window(i, false)
			w.Counts[Sent]++
			w.Record(Publish, n)
			s.Add(uint64(n + i))
		}
		r.Flush()
	}
	fill(10)
	windows, sets := c.Take()
	for n := range int64(50) {
		fill(n)
	}
	held := map[uint64]bool{}
	members(sets[0].Pages, held)
	if w := windows[0]; w.Counts[Sent] != 10 || w.Hists[Publish].Count() != 10 || w.Hists[Publish].Max() != 10 ||
		len(held) != 10 {
		t.Errorf("changed afterwards: %d sent, %d samples up to %d, %d numbers", w.Counts[Sent],
			w.Hists[Publish].Count(), w.Hists[Publish].Max(), len(held))
	}
}

// Owners record while another goroutine calls Take: nothing is lost, doubled or raced.
func TestCollectorConcurrently(t *testing.T) {
	const owners, events = 4, 20_000
	c := NewCollector(10 * time.Second)
	m := NewMerged()
	var seq uint64
	take := func() {
		windows, sets := c.Take()
		seq++
		m.Add(Snapshot{Seq: seq, Windows: windows, Sets: sets})
	}
	var wg sync.WaitGroup
	for o := range owners {
		wg.Go(func() {
			r := c.Recorder()
			s := r.Set(SetKey{Kind: SetSent, Publisher: 0})
			for i := range events {
				w := r.Window(int64(i)*int64(time.Millisecond), i%3 != 0)
				w.Counts[Sent]++
				w.Record(Publish, int64(i))
				s.Add(uint64(i*owners + o))
			}
			r.Flush()
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		take()
	}
	if got := m.Total(Sent); got != owners*events {
		t.Errorf("%d counted, want %d", got, owners*events)
	}
	if got := m.Accounting(0).Sent; got != owners*events {
		t.Errorf("%d in the set, want %d", got, owners*events)
	}
	samples := uint64(0)
	for _, w := range m.Windows() {
		samples += w.Hists[Publish].Count()
	}
	if samples != owners*events {
		t.Errorf("%d samples, want %d", samples, owners*events)
	}
}

// Recording does not allocate, so that the garbage collector does not affect metrics.
func TestRecordingDoesNotAllocate(t *testing.T) {
	c := NewCollector(time.Hour)
	r := c.Recorder()
	s := r.Set(SetKey{})
	now, sequence := int64(0), uint64(0)
	run := func() {
		for range 1000 {
			w := r.Window(now, true)
			w.Counts[Sent]++
			w.Record(Publish, 1000+now%100_000)
			s.Add(sequence)
			now += 1000
			sequence++
		}
	}
	if n := testing.AllocsPerRun(100, run); n > 3 {
		t.Errorf("%v allocations per 1000 messages, want at most a few", n)
	}
}
