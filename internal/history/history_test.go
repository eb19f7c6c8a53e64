package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

var firstStart = time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC)

// scheduledRun writes a run of cells, one run per day, with the subject and the values of the caller.
func scheduledRun(t testing.TB, root string, n, cells, repeat int,
	make func(cell, repetition int, o *plan.Outcome)) plan.Run {
	t.Helper()
	run := plan.Run{Version: plan.RecordFormat, ID: fmt.Sprintf("run-%04d", n), Name: "nightly", Repeat: repeat,
		Started: firstStart.AddDate(0, 0, n), Axes: []string{"mode"}}
	for i := range cells {
		run.Cells = append(run.Cells, plan.Cell{ID: fmt.Sprintf("%012x", 0xabc000+i), Index: i,
			Workload: plan.Default(), Broker: plan.Broker{Options: []byte("{}")},
			Coordinates: []plan.Coordinate{{Axis: "mode", Value: fmt.Appendf(nil, "%q", fmt.Sprintf("m%d", i))}}})
	}
	r, err := runs.Create(root, run)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range run.Tasks() {
		finishTask(t, r, task, make)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return run
}

func finishTask(t testing.TB, r *runs.Run, task plan.Task, make func(cell, repetition int, o *plan.Outcome)) {
	t.Helper()
	o := plan.Outcome{Version: plan.RecordFormat, Run: task.Run, Task: task.ID, Cell: task.Cell.ID,
		Index: task.Cell.Index, Repetition: task.Repetition,
		Verdict: plan.Valid, Values: map[string]plan.Value{"publish.rate": {Number: 1000}, "lost": {},
			"publish.p99": {NA: "fire-and-forget"},
			"e2e.p99":     {Number: 0.002, Bound: 0.0001, Flags: []plan.Flag{plan.Backlog}}},
		Agents:  []plan.AgentPart{{Agent: "a1", Host: "bench-1", Version: "1.0"}},
		Subject: plan.Subject{Product: "RabbitMQ", Version: "4.0", Settings: map[string]string{"watermark": "0.4"}}}
	make(task.Cell.Index, task.Repetition, &o)
	o.Subject.Fingerprint = plan.Fingerprint(o.Subject)
	if err := r.Finish(o); err != nil {
		t.Fatal(err)
	}
}

func unchanged(int, int, *plan.Outcome) {}

func refresh(t testing.TB, s *Store) Indexed {
	t.Helper()
	in, err := s.Fresh(context.Background())
	if err != nil || len(in.Warnings) > 0 {
		t.Fatal(err, in.Warnings)
	}
	return in
}

func mustAnswer(t testing.TB, s *Store, q plan.HistoryQuery) plan.HistoryAnswer {
	t.Helper()
	a, err := s.Answer(q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestStoredValuesRoundTrip(t *testing.T) {
	root := t.TempDir()
	s := Of(root)
	if a := mustAnswer(t, s, plan.HistoryQuery{Value: "publish.rate"}); len(a.Cells) != 0 {
		t.Errorf("empty history: got cells %v, want none", a.Cells)
	}
	run := scheduledRun(t, root, 0, 3, 2, func(cell, repetition int, o *plan.Outcome) {
		o.Values["publish.rate"] = plan.Value{Number: float64(100*cell + repetition)}
		if cell == 2 {
			o.Verdict = plan.Invalid
			o.Groups = []plan.GroupOutcome{{Name: "bulk", Values: map[string]plan.Value{"publish.rate": {Number: 7}}}}
		}
	})
	if in := refresh(t, s); in.Runs != 1 || in.Outcomes != 6 {
		t.Errorf("first index: got %+v, want 1 run, 6 outcomes", in)
	}
	if in := refresh(t, s); in.Runs != 0 {
		t.Errorf("second index: got %+v, want no runs: all are complete", in)
	}
	a := mustAnswer(t, s, plan.HistoryQuery{Cells: []string{"mode=m1"}, Value: "publish.rate"})
	if len(a.Cells) != 1 || len(a.Cells[0].Points) != 2 {
		t.Fatalf("answer: got %+v, want 1 cell, 2 points", a)
	}
	p := a.Cells[0].Points[1]
	want := plan.HistoryPoint{Run: run.ID, Matrix: "nightly", At: firstStart, Repetition: 2,
		Value:   plan.Value{Number: 102},
		Verdict: plan.Valid, Subject: p.Subject, Environment: p.Environment, Version: "1.0"}
	if d := cmp.Diff(want, p); d != "" {
		t.Error(d)
	}
	if a.Subjects[p.Subject].Version != "4.0" || !slices.Equal(a.Environments[p.Environment].Hosts,
		[]string{"bench-1"}) {
		t.Errorf("got subjects %v, environments %v, want version 4.0, host bench-1", a.Subjects, a.Environments)
	}
	for value, want := range map[string]plan.Value{"lost": {}, "publish.p99": {NA: "fire-and-forget"},
		"e2e.p99": {Number: 0.002, Bound: 0.0001, Flags: []plan.Flag{plan.Backlog}}, "bulk/publish.rate": {Number: 7}} {
		a := mustAnswer(t, s, plan.HistoryQuery{Cells: []string{run.Cells[2].ID}, Value: value})
		if d := cmp.Diff(want, a.Cells[0].Points[0].Value); d != "" || a.Cells[0].Points[0].Usable() {
			t.Errorf("%s of an invalid outcome: want an unusable point (-want +got): %s", value, d)
		}
	}
}

// A metric that only a driver declares is returned with its unit, from the last indexed run.
func TestMetricsRoundTrip(t *testing.T) {
	root := t.TempDir()
	s := Of(root)
	unknown := mustAnswer(t, s, plan.HistoryQuery{Value: "broker.segments.max"})
	for n, unit := range []string{"count", "pages"} {
		run := plan.Run{Version: plan.RecordFormat, ID: fmt.Sprintf("run-%04d", n), Name: "nightly", Repeat: 1,
			Started: firstStart.AddDate(0, 0, n), Metrics: plan.Metrics{{Name: "segments", Unit: unit, Doc: "d"}},
			Cells: []plan.Cell{{ID: "abc", Workload: plan.Default(), Broker: plan.Broker{Options: []byte("{}")}}}}
		r, err := runs.Create(root, run)
		if err != nil {
			t.Fatal(err)
		}
		finishTask(t, r, run.Tasks()[0], func(_, _ int, o *plan.Outcome) {
			o.Values["broker.segments.max"] = plan.Value{Number: 7}
		})
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		refresh(t, s)
		a := mustAnswer(t, s, plan.HistoryQuery{Value: "broker.segments.max"})
		if info, is := a.Metrics.ValueNamed("broker.segments.max"); !is || info.Unit != plan.Unit(unit) ||
			len(a.Cells[0].Points) != n+1 {
			t.Errorf("answer: got %+v, want unit %s, %d points", a, unit, n+1)
		}
	}
	answers, err := s.Look(plan.HistoryCell{ID: "abc"}, []string{"lost", "bulk/broker.segments.max"},
		firstStart.AddDate(1, 0, 0), 9)
	if err != nil || len(answers[0].History.Metrics) != 0 || len(answers[1].History.Metrics) != 1 || len(unknown.Metrics) != 0 {
		t.Errorf("got answers %+v, error %v, answer before the first run %+v, want a metric only in the second answer",
			answers, err, unknown)
	}
}

func TestCellsAreFoundByPrefixAndAxis(t *testing.T) {
	root := t.TempDir()
	scheduledRun(t, root, 0, 20, 1, unchanged)
	s := Of(root)
	refresh(t, s)
	for _, c := range []struct {
		cells   []string
		want    int
		wantErr string
	}{
		{nil, 20, ""}, {[]string{"000000abc00"}, 16, ""}, {[]string{"000000abc001"}, 1, ""},
		{[]string{"mode=m3,m4"}, 2, ""},
		{[]string{"mode=m3", "mode=m4", "000000abc003"}, 1, ""},
		{[]string{"mod=m3", "ffff"}, 0, `no cell has mod=m3; values of mod are: none; no cell id begins with "ffff"`},
		{[]string{"mode=x"}, 0, `no cell has mode=x; values of mode are: m0, m1,`},
	} {
		a, err := s.Answer(plan.HistoryQuery{Cells: c.cells})
		if c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) || c.wantErr == "" &&
			(err != nil || len(a.Cells) != c.want) {
			t.Errorf("cells %v: got %d, error %v, want %d, error %q", c.cells, len(a.Cells), err, c.want, c.wantErr)
		}
	}
	if _, err := s.Answer(plan.HistoryQuery{Value: "publish.rat"}); err == nil ||
		!strings.Contains(err.Error(), `did you mean "publish.rate"`) {
		t.Errorf("misspelt value: got error %v, want a proposal", err)
	}
	if _, err := s.Answer(plan.HistoryQuery{Matrix: "weekly"}); err == nil ||
		!strings.Contains(err.Error(), "use one of nightly") {
		t.Errorf("unknown matrix: got error %v, want the known ones", err)
	}
	scheduledRun(t, root, 1, 20, 1, unchanged)
	refresh(t, s)
	a := mustAnswer(t, s, plan.HistoryQuery{Value: "publish.rate", Max: 10})
	if len(a.Cells) != 20 || len(a.Cells[0].Points) != 1 || a.MorePoints != 20 {
		t.Errorf("at most 10 points of 20 cells with 2 each: got %d cells, %d points of the first, %d left out, want 20, 1, 20",
			len(a.Cells), len(a.Cells[0].Points), a.MorePoints)
	}
}

// A run that has continued is read again, a run that was copied later is read, and indexing again has no effect.
func TestRecordsAreReadAgain(t *testing.T) {
	root := t.TempDir()
	s := Of(root)
	half := plan.Run{Version: plan.RecordFormat, ID: "half", Name: "nightly", Repeat: 1,
		Started: firstStart.AddDate(0, 0, -400), Cells: []plan.Cell{{ID: "a",
			Broker: plan.Broker{Options: []byte("{}")}},
			{ID: "b", Index: 1, Broker: plan.Broker{Options: []byte("{}")}}}}
	r, err := runs.Create(root, half)
	if err != nil {
		t.Fatal(err)
	}
	finishTask(t, r, half.Tasks()[0], unchanged)
	refresh(t, s)
	if a := mustAnswer(t, s, plan.HistoryQuery{}); len(a.Cells) != 1 {
		t.Fatalf("cells of an incomplete run: got %v, want the one with an outcome", a.Cells)
	}
	finishTask(t, r, half.Tasks()[1], unchanged)
	if err := r.AddEvent(runs.TimelineEvent{At: time.Now(), Kind: runs.TimelineEnd}); err != nil {
		t.Fatal(err)
	}
	otherRoot := t.TempDir()
	scheduledRun(t, otherRoot, 3, 1, 1, unchanged)
	if err := os.CopyFS(filepath.Join(root, "run-0003"),
		os.DirFS(filepath.Join(otherRoot, "run-0003"))); err != nil {
		t.Fatal(err)
	}
	if in := refresh(t, s); in.Runs != 2 {
		t.Errorf("index: got %+v, want 2 runs", in)
	}
	before := mustAnswer(t, s, plan.HistoryQuery{Value: "publish.rate"})
	if len(before.Cells) != 3 || before.Runs != 2 {
		t.Errorf("got %d cells, %d runs, want 3, 2", len(before.Cells), before.Runs)
	}
	if err := s.SetBaseline(plan.Baseline{Name: "good", Run: "run-0003"}); err != nil {
		t.Fatal(err)
	}
	for _, rebuild := range []bool{false, true, true} {
		if in, err := s.Reindex(t.Context(), rebuild); err != nil || in.Runs != 2 || in.Outcomes != 3 {
			t.Errorf("Reindex: got %+v, error %v, want 2 runs, 3 outcomes", in, err)
		}
		if d := cmp.Diff(before, mustAnswer(t, s, plan.HistoryQuery{Value: "publish.rate"})); d != "" {
			t.Errorf("Reindex with rebuild %v changed the history (-want +got): %s", rebuild, d)
		}
		if b, err := s.Baselines(); err != nil || len(b) != 1 || b[0].Run != "run-0003" {
			t.Errorf("baselines: got %+v, error %v, want that of run-0003", b, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "run-0003")); err != nil {
		t.Fatal(err)
	}
	if in, err := s.Reindex(t.Context(), false); err != nil || in.Gone != 1 ||
		mustAnswer(t, s, plan.HistoryQuery{}).Runs != 2 {
		t.Errorf("Reindex after a record was deleted: got %+v, error %v, want 1 missing, 2 runs in the history", in,
			err)
	}
}

func TestDamagedStoreIsRebuilt(t *testing.T) {
	root := t.TempDir()
	scheduledRun(t, root, 0, 2, 1, unchanged)
	s := Of(root)
	refresh(t, s)
	if err := os.WriteFile(filepath.Join(root, File), []byte("not a store"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Answer(plan.HistoryQuery{}); !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), "reindex --rebuild") {
		t.Errorf("damaged store: got error %v, want ErrDamaged with the command", err)
	}
	if in, err := s.Reindex(t.Context(), true); err != nil || len(in.Warnings) > 0 ||
		mustAnswer(t, s, plan.HistoryQuery{}).Runs != 1 {
		t.Errorf("Reindex with rebuild: got %+v, error %v, want no warnings, 1 run", in, err)
	}
}

// If indexing is interrupted at any point, the index has complete runs, and the next indexing continues.
func TestInterruptedIndex(t *testing.T) {
	root := t.TempDir()
	for n := range 3 {
		scheduledRun(t, root, n, 2, 1, unchanged)
	}
	s := Of(root)
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	_, err := s.index(ctx, func(string) bool {
		if seen++; seen == 2 {
			cancel()
		}
		return true
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted index: got error %v, want context.Canceled", err)
	}
	if a := mustAnswer(t, s, plan.HistoryQuery{Value: "publish.rate"}); a.Runs != 2 || len(a.Cells[0].Points) != 2 {
		t.Errorf("after the interruption: got %d runs, want 2", a.Runs)
	}
	if in := refresh(t, s); in.Runs != 1 || mustAnswer(t, s, plan.HistoryQuery{}).Runs != 3 {
		t.Errorf("next index: got %+v, want 1 run, 3 in total", in)
	}
}

// A rebuild that is interrupted leaves the old history as it was, and no other file.
func TestInterruptedRebuild(t *testing.T) {
	root := t.TempDir()
	for n := range 3 {
		scheduledRun(t, root, n, 2, 1, unchanged)
	}
	s := Of(root)
	refresh(t, s)
	before, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Reindex(ctx, true); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted rebuild: got error %v, want context.Canceled", err)
	}
	if runs := mustAnswer(t, s, plan.HistoryQuery{}).Runs; runs != 3 {
		t.Errorf("runs after an interrupted rebuild: got %d, want 3", runs)
	}
	if after, err := os.ReadDir(root); err != nil || len(after) != len(before) {
		t.Errorf("files after an interrupted rebuild: got %v, error %v, want %v", after, err, before)
	}
	if in, err := s.Reindex(t.Context(), true); err != nil || in.Runs != 3 {
		t.Errorf("next rebuild: got %+v, error %v, want 3 runs", in, err)
	}
}

func TestReindexStreams(t *testing.T) {
	root := t.TempDir()
	ids, cells := 12, 10
	padding := strings.Repeat("x", 50_000) // in each outcome: 6 MB of records in total, half of one per run
	for n := range ids {
		scheduledRun(t, root, n, cells, 1, func(_, _ int, o *plan.Outcome) { o.Reasons = []string{padding} })
	}
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s, base, peak := Of(root), live(), uint64(0)
	in, err := s.index(t.Context(), func(string) bool {
		peak = max(peak, live()) // live memory, independent of the garbage collector's timing
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	used := (max(peak, base) - base) >> 20
	t.Logf("maximum live memory while indexing %d MB of records: %d MB", ids*cells*len(padding)>>20, used)
	if in.Outcomes != ids*cells || used > 3 {
		t.Errorf("got %+v, %d MB of live memory, want %d outcomes, at most 3 MB", in, used, ids*cells)
	}
}

// reindexWithPeak rebuilds the history of a folder. It returns the maximum growth of the heap in MB.
func reindexWithPeak(t testing.TB, root string) (in Indexed, used uint64) {
	t.Helper()
	var base runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&base)
	var stop atomic.Bool
	done := make(chan uint64)
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	go func() {
		peak, now := uint64(0), runtime.MemStats{}
		for tick := time.NewTicker(5 * time.Millisecond); !stop.Load(); <-tick.C {
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
		}
		done <- peak
	}()
	in, err := Of(root).Reindex(t.Context(), true)
	stop.Store(true)
	peak := <-done
	if err != nil {
		t.Fatal(err)
	}
	return in, (max(peak, base.HeapAlloc) - base.HeapAlloc) >> 20
}

// BenchmarkReindex rebuilds the history of few and of many runs with 40 cells and every value: the heap does not grow
// with the number of runs.
func BenchmarkReindex(b *testing.B) {
	for _, ids := range []int{50, 100, 200} {
		b.Run(fmt.Sprintf("runs=%d", ids), func(b *testing.B) {
			root := b.TempDir()
			for n := range ids {
				scheduledRun(b, root, n, 40, 1, func(cell, _ int, o *plan.Outcome) {
					for k, v := range plan.Values() {
						o.Values[v.Name] = plan.Value{Number: float64(n*cell*k) + 0.5}
					}
				})
			}
			b.ResetTimer()
			peak := uint64(0)
			for range b.N {
				_, used := reindexWithPeak(b, root)
				peak = max(peak, used)
			}
			b.ReportMetric(float64(peak), "heap-MB")
			b.ReportMetric(float64(ids*40*b.N)/b.Elapsed().Seconds(), "outcomes/s")
		})
	}
}

// A step is found with its date, the changed setting is named, and runs from another host are a separate series.
func TestSeriesNameChangedSettings(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	root := t.TempDir()
	for n := range 30 {
		scheduledRun(t, root, n, 1, 2, func(_, _ int, o *plan.Outcome) {
			rate := 1000 * (1 + 0.03*r.NormFloat64())
			if n >= 20 {
				rate *= 0.85
				o.Subject.Settings["watermark"] = "0.6"
			}
			if n == 12 {
				rate *= 1.5
			}
			if n == 25 {
				o.Agents[0].Host = "laptop"
			}
			o.Values["publish.rate"] = plan.Value{Number: rate}
		})
	}
	s := Of(root)
	refresh(t, s)
	all := trendsOf(t, s).Series
	if len(all) != 2 || len(all[0].Points) != 29 || len(all[1].Points) != 1 || all[1].Environment.Hosts[0] != "laptop" {
		t.Fatalf("got series %+v, want one of 29 points and one of the other host", all)
	}
	c := all[0]
	if len(c.Changes) != 1 || c.Points[c.Changes[0].At].Run != "run-0020" {
		t.Fatalf("changes: got %+v, want one, at run-0020", c.Changes)
	}
	if causes := c.Causes(c.Changes[0].At); !slices.Equal(causes, []string{"watermark: 0.4 → 0.6 with run-0020"}) {
		t.Errorf("causes: got %q, want the changed setting", causes)
	}
}

// newSyntheticStore creates a store of many scheduled runs without records.
func newSyntheticStore(t testing.TB, root string, ids, cells int) *Store {
	t.Helper()
	s := Of(root)
	values := plan.Values()
	for n := 0; n < ids; {
		err := s.update(func(tx *bbolt.Tx) error {
			for some := 0; n < ids && some < 20_000; n, some = n+1, some+cells {
				run := plan.Run{ID: fmt.Sprintf("run-%04d", n), Name: "nightly",
					Started: firstStart.Add(time.Duration(n) * time.Hour)}
				var outcomes []plan.Outcome
				for i := range cells {
					cell := fmt.Sprintf("%012x", i)
					o := plan.Outcome{Run: run.ID, Cell: cell, Repetition: 1, Verdict: plan.Valid,
						Values:  map[string]plan.Value{},
						Agents:  []plan.AgentPart{{Host: "bench-1", Version: "1.0"}},
						Subject: plan.Subject{Version: "4.0", Fingerprint: fmt.Sprint(n / 500)}}
					for k, v := range values {
						o.Values[v.Name] = plan.Value{Number: float64(n*k) + 0.5}
					}
					outcomes = append(outcomes, o)
					run.Cells = append(run.Cells, plan.Cell{ID: cell,
						Coordinates: []plan.Coordinate{{Axis: "n", Value: fmt.Appendf(nil, "%d", i)}}})
				}
				if err := errors.Join(os.Mkdir(filepath.Join(root, run.ID), 0o755),
					putRun(tx, run, "", outcomes)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// BenchmarkHistory executes the queries of ctl history on a store of 5,000 runs with every value: checking for new
// records, reading, and detecting changes. With LOCKSTEP_LONG it has 200 cells, whose creation takes long. They are
// stored in the folder LOCKSTEP_HISTORY, if set, so that ctl history can be timed with them.
func BenchmarkHistory(b *testing.B) {
	cells, root := 4, os.Getenv("LOCKSTEP_HISTORY")
	if os.Getenv("LOCKSTEP_LONG") != "" {
		cells = 200
	}
	if root == "" {
		root = b.TempDir()
	}
	s := Of(root)
	if _, err := os.Stat(s.path); err != nil {
		s = newSyntheticStore(b, root, 5000, cells)
	}
	b.ResetTimer()
	for b.Loop() {
		refresh(b, s)
		a := mustAnswer(b, s, plan.HistoryQuery{Cells: []string{"000000000001"}, Value: "publish.rate"})
		if s := NewTrends("", Answer{"publish.rate", a}).Series; len(s[0].Points) != 5000 {
			b.Fatal(len(s[0].Points))
		}
	}
	if info, err := os.Stat(s.path); err == nil {
		b.ReportMetric(float64(info.Size())/1e6, "MB")
	}
}

// With an even number of repetitions, the value of a run is the median, as in tables and comparisons.
func TestMedianOfAnEvenNumberOfRepetitions(t *testing.T) {
	root := t.TempDir()
	rates := []float64{100, 400, 200, 300}
	scheduledRun(t, root, 0, 1, len(rates), func(_, repetition int, o *plan.Outcome) {
		o.Values["publish.rate"] = plan.Value{Number: rates[repetition-1]}
	})
	s := Of(root)
	refresh(t, s)
	if n := trendsOf(t, s).Series[0].Points[0]; n.Number != 250 {
		t.Errorf("value of the run: got %v, want 250: the mean of the two middle values", n.Number)
	}
}

// A failed scheduled run without a broker's description has no subject. The next run is compared with the last one that
// has one.
func TestFailedRunHasNoSubject(t *testing.T) {
	root := t.TempDir()
	for n := range 6 {
		scheduledRun(t, root, n, 1, 1, func(_, _ int, o *plan.Outcome) {
			if n%2 == 1 {
				o.Verdict, o.Subject = plan.Unknown, plan.Subject{}
			}
			if n == 4 {
				o.Subject.Settings["watermark"] = "0.9"
			}
		})
	}
	s := Of(root)
	refresh(t, s)
	all := trendsOf(t, s).Series
	if len(all) != 1 {
		t.Fatalf("got %d series, want 1", len(all))
	}
	for i, n := range all[0].Points {
		if want := map[int][]string{4: {"watermark: 0.4 → 0.9"}}[i]; !slices.Equal(n.New, want) {
			t.Errorf("run %d: changed settings: got %q, want %q", i, n.New, want)
		}
	}
}

func trendsOf(t testing.TB, s *Store) Trends {
	t.Helper()
	return NewTrends("", Answer{"publish.rate", mustAnswer(t, s, plan.HistoryQuery{Value: "publish.rate"})})
}

// If there are more points than the maximum, those left out are counted, but only those of the requested runs.
func TestMorePointsOfTheRequestedRuns(t *testing.T) {
	root := t.TempDir()
	for n := range 10 {
		scheduledRun(t, root, n, 1, 2, unchanged)
	}
	s := Of(root)
	refresh(t, s)
	a := mustAnswer(t, s, plan.HistoryQuery{Value: "publish.rate", Runs: 4, Max: 5})
	if len(a.Cells[0].Points) != 5 || a.MorePoints != 3 {
		t.Errorf("4 runs with 2 repetitions: got %d points, %d left out, want 5, 3", len(a.Cells[0].Points),
			a.MorePoints)
	}
}
