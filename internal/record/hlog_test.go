package record

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// logged is a record of two seconds of warm-up and two and a half seconds of measurement, with 100 samples per window.
func logged(epoch time.Time) *Merged {
	c := NewCollector(2500 * time.Millisecond)
	r := c.Recorder()
	for i := -200; i < 250; i++ {
		at := int64(i) * int64(10*time.Millisecond)
		r.Window(at, i >= 0).Record(Publish, 3_000_000+at/1000)
	}
	r.Flush()
	m := NewMerged()
	s := Snapshot{Epoch: epoch}
	s.Windows, s.Sets = c.Take()
	m.Add(s)
	return m
}

type logLine struct {
	tag               string
	start, end, count int64
	min, max          int64
}

func readLog(t *testing.T, log string) (lines []logLine) {
	t.Helper()
	reader := hdrhistogram.NewHistogramLogReader(strings.NewReader(log))
	for {
		h, err := reader.NextIntervalHistogram()
		if err != nil {
			t.Fatal(err)
		}
		if h == nil {
			return lines
		}
		lines = append(lines, logLine{h.Tag(), h.StartTimeMs(), h.EndTimeMs(), h.TotalCount(), h.Min(), h.Max()})
	}
}

// Other tools can read the logs: each window is at its time with all of its samples, and warm-up is tagged.
func TestHlogReadsBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		epoch time.Time
		zero  int64 // time of T0 for the reader, in ms
	}{
		{"with a wall clock", time.UnixMilli(1_700_000_000_250), 1_700_000_000_250},
		{"without one", time.Time{}, 2000},
	} {
		m := logged(c.epoch)
		var log bytes.Buffer
		if err := m.WriteHlog(&log, Publish); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"#[Histogram log format version 1.3]\n", "#[StartTime: ",
			"\"StartTimestamp\",\"Interval_Length\""} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, log.String())
			}
		}
		lines := readLog(t, log.String())
		windows := m.Windows()
		if len(lines) != 5 || len(windows) != 5 {
			t.Fatalf("%s: %d lines for %d windows, want 5", c.name, len(lines), len(windows))
		}
		for i, w := range windows {
			l, start := lines[i], c.zero+w.Start/int64(time.Millisecond)
			if abs(l.start-start) > 1 || abs(l.end-l.start-w.Length/int64(time.Millisecond)) > 1 {
				t.Errorf("%s: line %d from %d to %d, want from %d for %d ns", c.name, i, l.start, l.end, start,
					w.Length)
			}
			if (l.tag == "") != w.Measured {
				t.Errorf("%s: line %d has the tag %q, measured: %v", c.name, i, l.tag, w.Measured)
			}
			h := w.Hists[Publish]
			if l.count != int64(h.Count()) || l.min > h.Min() || l.max < h.Max() ||
				float64(l.max-l.min) > 1.01*float64(h.Max()-h.Min())+2000 {
				t.Errorf("%s: line %d has %d samples from %d to %d, want %d from %d to %d", c.name, i, l.count, l.min,
					l.max, h.Count(), h.Min(), h.Max())
			}
		}
	}
}

func abs(n int64) int64 { return max(n, -n) }

// A series without samples is a log without lines, not an error. An empty record is, too.
func TestHlogWithoutSamples(t *testing.T) {
	for _, m := range []*Merged{NewMerged(), logged(time.Time{})} {
		var log bytes.Buffer
		if err := m.WriteHlog(&log, Backpressure); err != nil {
			t.Fatal(err)
		}
		if lines := readLog(t, log.String()); len(lines) != 0 || !strings.Contains(log.String(), "StartTimestamp") {
			t.Errorf("%d lines in\n%s", len(lines), log.String())
		}
	}
}

type brokenWriter struct{ after int }

var errBroken = errors.New("disk full")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.after -= len(p); w.after < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

// A write error is returned.
func TestHlogReportsWriteErrors(t *testing.T) {
	if err := logged(time.Time{}).WriteHlog(&brokenWriter{}, Publish); !errors.Is(err, errBroken) {
		t.Errorf("error %v, want %v", err, errBroken)
	}
}
