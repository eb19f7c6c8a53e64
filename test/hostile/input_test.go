package hostile

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire"
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
