package controller_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// BenchmarkBetweenTasks measures the overhead between two cells: from the last confirm or delivery of one to the first
// message of the next, including the declaration of its topology. The median should be below 250 ms.
func BenchmarkBetweenTasks(b *testing.B) {
	for _, wait := range []struct {
		name  string
		count uint64
	}{{"small", 100}, {"10000-messages", 10000}} {
		b.Run(wait.name, func(b *testing.B) {
			l := newLocalFleet(b, "a1", "a2", "a3", "a4")
			cells := make([]func(*plan.Cell), b.N+2)
			for i := range cells {
				cells[i] = func(c *plan.Cell) { c.Workload.Publishers.Count = wait.count }
			}
			run := newRun(cells...)
			b.ResetTimer()
			w := l.run(run, nil, nil)
			b.StopTimer()
			var gaps []time.Duration
			var ended time.Time
			for _, o := range w.outcomes() {
				if o.Verdict != plan.Valid {
					b.Fatalf("task %s: got verdict %s, want valid: %v", o.Task, o.Verdict, o.Reasons)
				}
				begin, last := span(b, filepath.Join(w.root, run.ID, "tasks", o.Task, "snapshots.jsonl"))
				if !ended.IsZero() {
					gaps = append(gaps, begin.Sub(ended))
				}
				ended = last
			}
			slices.Sort(gaps)
			b.ReportMetric(float64(gaps[len(gaps)/2])/1e6, "ms/median")
			b.ReportMetric(float64(gaps[len(gaps)*99/100])/1e6, "ms/p99")
		})
	}
}

// span returns the intended send time of a task's first message, and the time of its last event.
func span(b *testing.B, file string) (begin, last time.Time) {
	f, err := os.Open(file)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var s record.Snapshot
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			b.Fatal(err)
		}
		if s.Epoch.IsZero() {
			continue
		}
		begin = s.Epoch
		if at := s.Epoch.Add(time.Duration(max(s.LastDelivery, s.LastConfirm))); at.After(last) {
			last = at
		}
	}
	return begin, last
}
