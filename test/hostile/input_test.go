package hostile

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/process"
)

// putSchedule stores a schedule as ctl does, and returns the error of the response.
func (f *fleet) putSchedule(s schedule.Schedule) string {
	f.t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	must(f.t, json.NewEncoder(z).Encode(s))
	must(f.t, z.Close())
	return requestError(f.t, f.dial("client.nk"), message("lockstep.client.schedule.put",
		jsonText(f.t, map[string]any{"Name": s.Name, "Value": b.Bytes()})))
}

const tiny = `
name: "tiny"
brokers: loop: {driver: "loopback", options: name: "tiny"}
axes: mode: ["confirm-window"]
cell: {
	axis: _
	publishers: {mode: axis.mode, rate: 1000, count: 50}
	warmup: "0s"
	measure: "5s"
}
tables: [{rows: ["mode"], values: ["publish.rate"]}]
`

// TestSchedulesWithInvalidState proves that the state of a schedule, which a client may write, is checked. The names of
// its runs become words of subjects and parts of paths.
func TestSchedulesWithInvalidState(t *testing.T) {
	f := startFleet(t)
	for name, change := range map[string]func(*schedule.Schedule){
		"long run": func(s *schedule.Schedule) {
			s.Current = &schedule.Entry{Run: longName,
				State: schedule.Starting}
		},
		"other folder": func(s *schedule.Schedule) { s.Current = &schedule.Entry{Run: "../x", State: schedule.Submitted} },
	} {
		s := schedule.New(schedule.Definition{Name: strings.ReplaceAll(name, " ", "-"), Cron: "@yearly", Zone: "UTC",
			MissedRuns: schedule.MissedSkip,
			Overlap:    schedule.OverlapSkip, Matrix: schedule.Matrix{File: "x.cue", Text: tiny}}, "id", "me",
			time.Now())
		change(&s)
		if rejection := f.putSchedule(s); rejection == "" {
			t.Errorf("%s: put a schedule: got no error", name)
		}
		f.checkController(name)
	}
}

// TestRunsThatCannotBeCopied proves that a submission is rejected if no controller can copy its record. Records that
// were not copied are never deleted, so a few of them would use the whole storage.
func TestRunsThatCannotBeCopied(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	for _, id := range []string{"a/b", "..", ".hidden", "latest", "a\x00b"} {
		r := newRun("x")
		r.ID = id
		if requestError(t, f.dial("client.nk"), submission(t, id, wire.Submission{Run: r})) == "" {
			t.Errorf("submit a run with id %q: got no error", id)
		}
	}
	f.executeRun("same")
	r := newRun("same")
	r.Cells[0].ID = "other"
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	end := f.readRun("same", func(wire.Entry) {})
	if end.Reason != wire.EndRefused {
		t.Errorf("end of a different run with the id of a recorded one: got %+v, want reason %s", end, wire.EndRefused)
	}
}

// TestLongTextsOfRuns proves that texts of a submission, which are the reason why it is rejected or waits, do not fill
// the states of runs. The list of runs can then be read, and states of other runs can be stored.
func TestLongTextsOfRuns(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	long, err := json.Marshal(strings.Repeat("a", 7<<20)) // 7 KB compressed
	must(t, err)
	for i := range 10 {
		r := newRun(fmt.Sprint("long", i))
		r.Cells[0].Coordinates[0].Value = long
		r.Cells[0].Workload.Measure = -1
		if i%2 == 0 {
			r.Cells[0].Coordinates, r.Cells[0].Broker.Name = nil, string(long)
		}
		must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
		if end := f.readRun(r.ID, func(wire.Entry) {}); end.Reason != wire.EndRefused || len(end.Detail) > 2000 {
			t.Errorf("end of run %s: got %s with %d bytes of detail, want %s with at most 2000", r.ID, end.Reason,
				len(end.Detail), wire.EndRefused)
		}
	}
	f.executeRun("after")
	all, err := f.client.Runs(t.Context())
	if err != nil || len(all) != 11 {
		t.Errorf("list of runs: got %d, error %v, want 11", len(all), err)
	}
	for name, info := range f.streamInfos() {
		if name == "KV_LOCKSTEP_STATE" && info.State.Bytes > 1<<20 {
			t.Errorf("states of 11 runs: got %d bytes, want at most 1 MiB", info.State.Bytes)
		}
	}
}

// TestNamesOfCellsAndGroupsAreNoPaths proves that no name in a submission becomes the path of a file outside the copy
// of its run, and that the record of each run can be copied.
func TestNamesOfCellsAndGroupsAreNoPaths(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	submitted := map[string]string{} // name by run
	for i, name := range []string{"x/../../../y", "a/b", ".", "", "a\x00b", strings.Repeat("g", 300)} {
		for _, what := range []string{"cell", "group"} {
			r := newRun(fmt.Sprint(what, i))
			c := &r.Cells[0]
			c.ID = "c"
			if what == "cell" && len(name) < 200 { // a longer one is not queued
				c.ID = name
			} else {
				w := c.Workload
				c.Workload.Groups = []plan.Group{{Name: name, Publishers: w.Publishers, Consumers: w.Consumers,
					Topology: w.Topology, Message: w.Message, Guarantees: c.Guarantees}}
			}
			must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
			submitted[r.ID] = name
		}
	}
	for id, name := range submitted {
		if end := f.readRun(id, func(wire.Entry) {}); end.Reason != wire.EndRefused ||
			!strings.Contains(end.Detail, "a cell or group with the name") {
			t.Errorf("end of run %s with the name %.20q: got %+v, want reason %s", id, name, end, wire.EndRefused)
		}
	}
	f.executeRun("after")
	process.Eventually(t, "copies of all runs", func() bool {
		all, err := f.client.Runs(t.Context())
		return err == nil && !slices.ContainsFunc(all, func(r wire.RunState) bool { return !r.Copied })
	})
}

// TestTablesOfRunsAreBounded proves that a run cannot have tables that use more memory than each controller that copies
// it has. Package report bounds their fields.
func TestTablesOfRunsAreBounded(t *testing.T) {
	f := startFleet(t)
	for want, change := range map[string]func(*plan.Run){
		"300000 tables": func(r *plan.Run) {
			r.Tables = slices.Repeat([]plan.Table{{Rows: []string{"n"}, Values: []string{"lost"}}}, 300_000)
		},
		"101 values":   func(r *plan.Run) { r.Tables = []plan.Table{{Values: make([]string, 101)}} },
		"1000000 axes": func(r *plan.Run) { r.Tables = []plan.Table{{Rows: make([]string, 1_000_000)}} },
		"a text of 5242880 bytes": func(r *plan.Run) {
			r.Tables = []plan.Table{{Rows: []string{"n"}, Split: []string{"n"}, Title: strings.Repeat("t", 5<<20)}}
		},
		"200000 excluded combinations": func(r *plan.Run) { r.Excluded = make([]plan.Excluded, 200_000) },
		"300 baselines":                func(r *plan.Run) { r.Bases = make([]plan.Base, 300) },
	} {
		r := newRun("t" + strings.ReplaceAll(want, " ", "-"))
		change(&r)
		must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
		if end := f.readRun(r.ID, func(wire.Entry) {}); end.Reason != wire.EndRefused || !strings.Contains(end.Detail, want) {
			t.Errorf("end of a run with %s: got %+v, want reason %s", want, end, wire.EndRefused)
		}
	}
	f.checkController("large tables")
}

// TestTheQueueIsBounded proves that a client cannot queue runs that use more memory than a leader has.
func TestTheQueueIsBounded(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	first := newRun("first")
	first.Cells[0].Workload.Publishers.Rate = 0.5 // the others wait for its agents
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: first}))
	large := func(i int) error {
		r := newRun(fmt.Sprint("large", i))
		r.Cells[0].Notes = []string{strings.Repeat("x", 12<<20)} // 12 KB compressed
		return f.client.Submit(t.Context(), wire.Submission{Run: r})
	}
	n, err := 0, error(nil)
	for ; n < 20 && err == nil; n++ {
		err = large(n)
	}
	if !errors.Is(err, wire.ErrFull) || n < 2 || !strings.Contains(err.Error(), "the maximum is 1000 runs and 96 MiB") {
		t.Fatalf("submit runs of 12 MiB: got error %v after %d runs, want ErrFull after at least 2 and at most 20", err,
			n)
	}
	must(t, f.client.Cancel(t.Context(), "large0", "me"))
	f.readRun("large0", func(wire.Entry) {})
	for end := time.Now().Add(timeLimit); ; time.Sleep(50 * time.Millisecond) { // its submission is deleted after its end
		if err = large(n); err == nil || time.Now().After(end) {
			break
		}
	}
	must(t, err)
	must(t, f.client.Cancel(t.Context(), "first", "me"))
}

// TestSchedulesAreBounded proves the same for schedules.
func TestSchedulesAreBounded(t *testing.T) {
	f := startFleet(t)
	put := func(name, path string) string {
		return f.putSchedule(schedule.New(schedule.Definition{Name: name, Cron: "@yearly", Zone: "UTC",
			MissedRuns: schedule.MissedSkip, Overlap: schedule.OverlapSkip,
			Matrix: schedule.Matrix{File: "x.cue", Path: path, Text: tiny}}, "id", "me", time.Now()))
	}
	if rejection := put("large", strings.Repeat("x", 2<<20)); !strings.Contains(rejection, "more than") {
		t.Errorf("put a schedule of more than 2 MiB: got error %q, want \"more than\"", rejection)
	}
	n, rejection := 0, ""
	for ; n < 200 && rejection == ""; n++ {
		rejection = put(fmt.Sprint("s", n), "x")
	}
	if n != 101 || !strings.Contains(rejection, "there are 100 schedules, the maximum") {
		t.Errorf("put schedules: got error %q for number %d, want the maximum of 100 for number 101", rejection, n)
	}
	must(t, f.client.RemoveSchedule(t.Context(), "s0", f.revision("s0")))
	if rejection := put("another", "x"); rejection != "" {
		t.Errorf("put a schedule after one was removed: got error %q, want none", rejection)
	}
}

func (f *fleet) revision(name string) uint64 {
	f.t.Helper()
	s, err := f.client.Schedule(f.t.Context(), name)
	must(f.t, err)
	return s.Revision
}

// TestLongNamesOfBaselines proves that a rule of a matrix cannot make the controller use a subject that is too long.
func TestLongNamesOfBaselines(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	r := newRun("rule")
	r.Cells[0].Require = []plan.Rule{{Text: "publish.rate no worse than baseline " + longName + " by 5%"}}
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	end := f.readRun("rule", func(wire.Entry) {})
	if end.Reason != wire.EndDone || end.Ran != 1 {
		t.Errorf("end of the run: got %+v, want reason %s and 1 task", end, wire.EndDone)
	}
	f.checkController("a long name of a baseline")
}
