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

// putSchedule stores a schedule as ctl does, and returns the refusal.
func (f *fleet) putSchedule(s schedule.Schedule) string {
	f.t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	must(f.t, json.NewEncoder(z).Encode(s))
	must(f.t, z.Close())
	return refusalOf(f.t, f.dial("client.nk"), message("lockstep.client.schedule.put",
		text(f.t, map[string]any{"Name": s.Name, "Value": b.Bytes()})))
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
	for what, change := range map[string]func(*schedule.Schedule){
		"long run":     func(s *schedule.Schedule) { s.Current = &schedule.Entry{Run: tooLong, State: schedule.Starting} },
		"other folder": func(s *schedule.Schedule) { s.Current = &schedule.Entry{Run: "../x", State: schedule.Submitted} },
	} {
		s := schedule.New(schedule.Definition{Name: strings.ReplaceAll(what, " ", "-"), Cron: "@yearly", Zone: "UTC", MissedRuns: schedule.MissedSkip,
			Overlap: schedule.OverlapSkip, Matrix: schedule.Matrix{File: "x.cue", Text: tiny}}, "id", "me",
			time.Now())
		change(&s)
		if refusal := f.putSchedule(s); refusal == "" {
			t.Errorf("%s: the schedule was stored", what)
		}
		f.alive(what)
	}
}

// TestRunsThatCannotBeCopied proves that a submission is refused if no controller can copy its record. Records that
// were not copied are never deleted, so a few of them would use the whole storage.
func TestRunsThatCannotBeCopied(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	for _, id := range []string{"a/b", "..", ".hidden", "latest", "a\x00b"} {
		r := aRun("x")
		r.ID = id
		if refusalOf(t, f.dial("client.nk"), submission(t, id, wire.Submission{Run: r})) == "" {
			t.Errorf("run %q was queued", id)
		}
	}
	f.works("same")
	r := aRun("same")
	r.Cells[0].ID = "other"
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	end := f.follow("same", func(wire.Entry) {})
	if end.Reason != wire.EndRefused {
		t.Errorf("another run with the id of a recorded one ended with %+v", end)
	}
}

// TestTheQueueIsBounded proves that a client cannot queue runs that use more memory than a leader has.
func TestTheQueueIsBounded(t *testing.T) {
	f := startFleet(t, "a1", "a2")
	first := aRun("first")
	first.Cells[0].Workload.Publishers.Rate = 0.5 // the others wait for its agents
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: first}))
	large := func(i int) error {
		r := aRun(fmt.Sprint("large", i))
		r.Cells[0].Notes = []string{strings.Repeat("x", 12<<20)} // 12 KB compressed
		return f.client.Submit(t.Context(), wire.Submission{Run: r})
	}
	n, err := 0, error(nil)
	for ; n < 20 && err == nil; n++ {
		err = large(n)
	}
	if !errors.Is(err, wire.ErrFull) || n < 2 || !strings.Contains(err.Error(), "the maximum is 1000 runs and 96 MiB") {
		t.Fatalf("%d runs of 12 MiB were queued: %v", n, err)
	}
	must(t, f.client.Cancel(t.Context(), "large0", "me"))
	f.follow("large0", func(wire.Entry) {})
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) { // its submission is deleted after its end
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
	if refusal := put("large", strings.Repeat("x", 2<<20)); !strings.Contains(refusal, "more than") {
		t.Errorf("a schedule of more than 2 MiB: refused with %q", refusal)
	}
	n, refusal := 0, ""
	for ; n < 200 && refusal == ""; n++ {
		refusal = put(fmt.Sprint("s", n), "x")
	}
	if n != 101 || !strings.Contains(refusal, "there are 100 schedules, the maximum") {
		t.Errorf("schedule %d: refused with %q", n, refusal)
	}
	must(t, f.client.RemoveSchedule(t.Context(), "s0", f.revision("s0")))
	if refusal := put("another", "x"); refusal != "" {
		t.Errorf("after one was removed: refused with %q", refusal)
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
	r := aRun("rule")
	r.Cells[0].Require = []plan.Rule{{Text: "publish.rate no worse than baseline " + tooLong + " by 5%"}}
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: r}))
	end := f.follow("rule", func(wire.Entry) {})
	if end.Reason != wire.EndDone || end.Ran != 1 {
		t.Errorf("the run ended with %+v", end)
	}
	f.alive("a long name of a baseline")
}
