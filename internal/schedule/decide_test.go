package schedule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

func nightly(change func(*Definition)) Definition {
	d := Definition{Name: "nightly", Cron: "0 2 * * *", Zone: "UTC", MissedRuns: MissedOnce,
		Within: plan.Duration(6 * time.Hour), Overlap: OverlapSkip,
		Hooks: []string{"mail"}, Matrix: Matrix{File: "n.cue", Text: "name: \"n\""}}
	if change != nil {
		change(&d)
	}
	return d
}

// fixture is a schedule that was added on 1 November 2026 at noon, and its timetable.
func fixture(t testing.TB, change func(*Definition)) (*Schedule, *Timetable) {
	t.Helper()
	d := nightly(change)
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	s := New(d, "id", "me@here", at(t, "2026-11-01T12:00:00Z"))
	return &s, table(t, d.Cron, d.Zone)
}

// ran executes the current run to its end.
func ran(t testing.TB, s *Schedule, now time.Time) string {
	t.Helper()
	run := s.Current.Run
	if !s.Begin(run, 1, now) || !s.Submit(run) || !s.End(run, Entry{State: Done, Ended: now, Tasks: Tasks{Valid: 3}}) {
		t.Fatalf("%+v did not run through", s.Current)
	}
	return run
}

// states returns the history as text: "done skipped".
func (s *Schedule) states() string {
	var words []string
	for _, e := range s.History {
		words = append(words, string(e.State))
	}
	return strings.Join(words, " ")
}

func TestSlotsFireOnce(t *testing.T) {
	s, slots := fixture(t, nil)
	if s.Due(slots, at(t, "2026-11-02T01:59:59Z")) || s.Current != nil {
		t.Error("it fired before its time")
	}
	if want := at(t, "2026-11-02T02:00:00Z"); !s.Wake(slots).Equal(want) {
		t.Errorf("it wakes at %s", s.Wake(slots))
	}
	if !s.Due(slots, at(t, "2026-11-02T02:00:30Z")) || s.Current == nil || s.Current.Missed != 0 {
		t.Fatalf("%+v: a slot half a minute old is on time", s.Current)
	}
	first := ran(t, s, at(t, "2026-11-02T02:10:00Z"))
	if s.Due(slots, at(t, "2026-11-02T02:11:00Z")) || s.Current != nil {
		t.Error("a slot fired twice")
	}
	// The clock is set back by minutes and by hours: a slot that had its run gets no other.
	for _, now := range []string{"2026-11-02T01:59:00Z", "2026-11-01T23:00:00Z", "2026-11-02T02:00:00Z",
		"2026-11-02T02:20:00Z"} {
		if s.Due(slots, at(t, now)); s.Current != nil {
			t.Errorf("at %s the slot fired again", now)
		}
	}
	s.Due(slots, at(t, "2026-11-03T02:00:00Z"))
	if s.Current == nil || s.Current.Previous != first || s.Current.Run == first {
		t.Errorf("%+v: want the next run, with the previous one", s.Current)
	}
}

func TestMissedSlots(t *testing.T) {
	for name, c := range map[string]struct {
		missed, now string
		current     string // slot
		why         string // of the skipped slots
	}{
		"once, young": {MissedOnce, "2026-11-05T07:59:00Z", "2026-11-05T02:00:00Z", ""},
		"once, too old": {MissedOnce, "2026-11-05T08:01:00Z", "",
			"older than 6h0m0s; 4 slots missed since 2026-11-01"},
		"skip": {MissedSkip, "2026-11-05T02:02:00Z", "",
			"no controller led at the time of the slot; 4 slots missed"},
		"skip, but one is on time": {MissedSkip, "2026-11-05T02:00:10Z", "2026-11-05T02:00:00Z", ""},
		"skip, only one":           {MissedSkip, "2026-11-02T02:02:00Z", "", "no controller led at the time of the slot"},
	} {
		t.Run(name, func(t *testing.T) {
			s, slots := fixture(t, func(d *Definition) { d.MissedRuns = c.missed })
			now := at(t, c.now)
			s.Due(slots, now)
			switch {
			case c.current == "" && s.Current != nil, c.current != "" &&
				(s.Current == nil || !s.Current.At.Equal(at(t, c.current))):
				t.Errorf("current is %+v, want %q", s.Current, c.current)
			case c.why == "" && len(s.History) > 0, c.why != "" &&
				(len(s.History) != 1 || !strings.Contains(s.History[0].Why, c.why)):
				t.Errorf("history is %+v, want %q", s.History, c.why)
			}
			if s.Current != nil && s.Current.Missed == 0 {
				t.Error("the reason has no number of missed slots")
			}
			if s.Due(slots, now) {
				t.Error("asked again it does it again")
			}
		})
	}
}

// For any time without a leader, the missed slots are one entry, or one run of the last slot.
func TestYearsAreMissedInOneStep(t *testing.T) {
	s, slots := fixture(t, func(d *Definition) { d.Cron = "* * * * *" })
	s.Due(slots, at(t, "2029-03-01T10:00:30Z"))
	if s.Current == nil || !s.Current.At.Equal(at(t, "2029-03-01T10:00:00Z")) || len(s.History) != 0 {
		t.Errorf("%+v, %+v: want the last minute's slot", s.Current, s.History)
	}
	s, slots = fixture(t, func(d *Definition) { d.Cron, d.MissedRuns = "0 0 1 1 *", MissedSkip })
	s.Due(slots, at(t, "2029-03-01T10:00:30Z"))
	if len(s.History) != 1 || !strings.Contains(s.History[0].Why, "3 slots") ||
		!s.History[0].At.Equal(at(t, "2029-01-01T00:00:00Z")) {
		t.Errorf("%+v: want one entry for three New Years", s.History)
	}
}

func TestOverlap(t *testing.T) {
	for policy, want := range map[string]string{OverlapSkip: "skipped skipped done", OverlapQueueOne: "skipped done"} {
		t.Run(policy, func(t *testing.T) {
			s, slots := fixture(t, func(d *Definition) { d.Cron, d.Overlap = "*/10 * * * *", policy })
			for _, now := range []string{"2026-11-01T12:10:00Z", "2026-11-01T12:20:00Z", "2026-11-01T12:30:00Z"} {
				s.Due(slots, at(t, now))
				s.Submit(s.Current.Run)
			}
			if !s.Current.At.Equal(at(t, "2026-11-01T12:10:00Z")) {
				t.Fatalf("current is %+v: a run in flight was replaced", s.Current)
			}
			s.Current.State = Starting
			ran(t, s, at(t, "2026-11-01T12:35:00Z"))
			if got := s.states(); got != want {
				t.Errorf("history is %q, want %q", got, want)
			}
			s.Due(slots, at(t, "2026-11-01T12:35:00Z"))
			if waited := s.Current != nil && s.Current.At.Equal(at(t,
				"2026-11-01T12:20:00Z")); waited != (policy == OverlapQueueOne) || s.Waiting != nil {
				t.Errorf("current is %+v, waiting %+v", s.Current, s.Waiting)
			}
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	s, slots := fixture(t, nil)
	s.Pause("you@there", at(t, "2026-11-01T13:00:00Z"))
	if s.Due(slots, at(t, "2026-11-04T02:00:00Z")) || !s.Wake(slots).IsZero() {
		t.Error("a paused schedule fired")
	}
	s.Resume("you@there", at(t, "2026-11-04T12:00:00Z"))
	if s.Due(slots, at(t, "2026-11-04T12:00:00Z")) || len(s.History) > 0 {
		t.Errorf("%+v: what passed while it was paused was not missed", s.History)
	}
	if s.Edit != 3 || s.By != "you@there" {
		t.Errorf("edit %d by %s", s.Edit, s.By)
	}
}

// A slot that waits for a run has a run id that people may have seen. It does not disappear.
func TestWaitingSlotsAreSkipped(t *testing.T) {
	for why, change := range map[string]func(*Schedule){
		"the schedule was paused":   func(s *Schedule) { s.Pause("me", at(t, "2026-11-01T13:00:00Z")) },
		"the schedule was replaced": func(s *Schedule) { s.Redefine(s.Definition, "me", at(t, "2026-11-01T13:00:00Z")) },
	} {
		s, _ := fixture(t, nil)
		slot := Slot{At: at(t, "2026-11-01T12:20:00Z")}
		s.Waiting = &slot
		change(s)
		if s.Waiting != nil || len(s.History) != 1 || s.History[0].State != Skipped || s.History[0].Why != why ||
			s.History[0].Slot != slot {
			t.Errorf("%s: waiting %v, history %+v, want the slot as skipped", why, s.Waiting, s.History)
		}
	}
}

func TestAsk(t *testing.T) {
	s, slots := fixture(t, nil)
	now := at(t, "2026-11-01T13:00:00Z")
	s.Pause("me", now)
	was := s.Clone()
	if err := s.Ask("you", now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if s.Edit == was.Edit || s.By != was.By || !s.Changed.Equal(was.Changed) {
		t.Errorf("edit %d, changed at %v by %s: want another edit of the same schedule", s.Edit, s.Changed, s.By)
	}
	if err := s.Ask("me", now.Add(time.Second)); err == nil {
		t.Error("asked for twice")
	}
	if !s.Due(slots, now.Add(time.Hour)) || s.Current == nil || !s.Current.Asked || s.Asked != nil {
		t.Fatalf("%+v: want a run now, paused or not", s.Current)
	}
	if err := s.Ask("me", now); err == nil || !strings.Contains(err.Error(), s.Current.Run) {
		t.Errorf("%v: want which run is in the way", err)
	}
}

// A clock that was ahead for some time does not stop a schedule for that time.
func TestClockThatWasFarAhead(t *testing.T) {
	s, slots := fixture(t, nil)
	s.Due(slots, at(t, "2031-05-05T02:00:10Z"))
	ran(t, s, at(t, "2031-05-05T02:00:20Z"))
	s.Due(slots, at(t, "2026-11-02T00:00:00Z"))
	if s.Due(slots, at(t, "2026-11-02T02:00:00Z")); s.Current == nil {
		t.Error("it does not fire until 2031")
	}
}

// A run whose creation ends every controller is abandoned.
func TestMakingIsGivenUp(t *testing.T) {
	s, slots := fixture(t, nil)
	now := at(t, "2026-11-02T02:00:00Z")
	s.Due(slots, now)
	run := s.Current.Run
	for epoch := range uint64(maxBegun) {
		if !s.Begin(run, epoch, now) || s.Current == nil {
			t.Fatal("given up too early")
		}
		for range 2 * maxBegun { // the submission failed, and is repeated
			if s.Begin(run, epoch, now) || s.Current == nil || s.Current.Begun != int(epoch)+1 {
				t.Fatalf("%+v after %d controllers", s.Current, epoch+1)
			}
		}
	}
	if !s.Begin(run, maxBegun, now) || s.Current != nil || s.states() != "matrix-error" ||
		!strings.Contains(s.History[0].Why, "3 controllers") {
		t.Errorf("%+v, %+v: want it given up", s.Current, s.History)
	}
	if s.History[0].Hooks[0].State != CallPending {
		t.Error("no hook is pending")
	}
}

// A late change of an earlier leader has no effect.
func TestStaleChanges(t *testing.T) {
	s, slots := fixture(t, nil)
	now := at(t, "2026-11-02T02:00:00Z")
	s.Due(slots, now)
	run := ran(t, s, now)
	s.Called(run, Call{Hook: "mail", State: CallDone}, nil)
	s.Due(slots, at(t, "2026-11-03T02:00:00Z"))
	before, _ := json.Marshal(s)
	for name, late := range map[string]func() bool{
		"Begin":  func() bool { return s.Begin(run, 1, now) },
		"Submit": func() bool { return s.Submit(run) },
		"Fail":   func() bool { return s.Fail(run, "x", now) },
		"End":    func() bool { return s.End(run, Entry{State: Done}) },
		"Called": func() bool { return s.Called(run, Call{Hook: "mail", State: CallFailed}, nil) },
	} {
		if late() {
			t.Errorf("%s of an ended slot reports a change", name)
		}
	}
	if after, _ := json.Marshal(s); string(after) != string(before) {
		t.Errorf("changed from\n%s to\n%s", before, after)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s, slots := fixture(t, func(d *Definition) {
		d.Hooks = strings.Split("abcdefghij", "")
		if len(d.Hooks) != maxHooks {
			t.Fatalf("%d hooks, want %d", len(d.Hooks), maxHooks)
		}
	})
	big := []byte(`{"x":"` + strings.Repeat("y", MaxCompared/2) + `"}`)
	now := at(t, "2026-11-02T02:00:00Z")
	for range maxHistory + 20 {
		s.Due(slots, now)
		run := s.Current.Run
		s.Begin(run, 1, now)
		s.Submit(run)
		problems := make([]string, 500)
		for i := range problems {
			problems[i] = strings.Repeat("ü", 1000)
		}
		s.End(run, Entry{State: Done, Tasks: Tasks{Valid: 1}, Problems: problems, Why: strings.Repeat("w", 1e6)})
		s.Called(run, Call{Hook: "a", State: CallDone}, big)
		for _, hook := range s.Hooks[1:] {
			s.Called(run, Call{Hook: hook, State: CallFailed, Why: strings.Repeat("w", 1e6)}, nil)
		}
		now = now.AddDate(0, 0, 1)
	}
	text, err := json.Marshal(s)
	if err != nil || len(s.History) != maxHistory || len(text) > maxStored {
		t.Errorf("%d entries, %d bytes, %v", len(s.History), len(text), err)
	}
	if back, err := Read(bytes.NewReader(text)); err != nil || len(back.History) != maxHistory {
		t.Errorf("it does not read back: %v", err)
	}
	if len(s.History[maxHistory-1].Compared) < len(big) {
		t.Error("the newest comparison is cut")
	}
}

func TestComparisons(t *testing.T) {
	var e Entry
	for hook, said := range map[string]string{"json": ` {"slower": 3} `, "text": "slower by 3 %\xff\n"} {
		if !e.compare(hook, []byte(said)) {
			t.Fatalf("%s was not kept", hook)
		}
	}
	if got := string(e.Compared); got != `{"json":{"slower":3},"text":"slower by 3 %�"}` {
		t.Errorf("kept is %s", got)
	}
	if e.compare("big", []byte(strings.Repeat("x", MaxCompared))) {
		t.Error("kept without bound")
	}
	if n := (&Schedule{Definition: nightly(nil), ID: "i"}).Notice(e, "mail"); n.Key != "i//mail" ||
		string(n.Comparison) != string(e.Compared) {
		t.Errorf("notice is %+v", n)
	}
}

func TestRunIDs(t *testing.T) {
	s, _ := fixture(t, nil)
	other, _ := fixture(t, nil)
	other.ID = "another of the same name"
	slot := Slot{At: at(t, "2026-11-02T03:00:00+01:00")}
	if a, b := s.RunID(slot), s.RunID(Slot{At: slot.At.UTC(), Missed: 3}); a != b ||
		!strings.HasPrefix(a, "20261102-020000-nightly-") {
		t.Errorf("%s and %s: want one id for one slot, whoever makes it", a, b)
	}
	seen := map[string]bool{}
	for _, id := range []string{s.RunID(slot), other.RunID(slot), s.RunID(Slot{At: slot.At, Asked: true}),
		s.RunID(Slot{At: slot.At.Add(time.Minute)})} {
		if seen[id] {
			t.Errorf("%s twice", id)
		}
		seen[id] = true
	}
	s.Name = "_a.b_C-d_" // drivers get topologies whose names consist of letters, digits and "-"
	if id := s.RunID(slot); !strings.HasPrefix(id, "20261102-020000-a-b-c-d-") || strings.Contains(id, "_") {
		t.Errorf("id %s of the schedule %s", id, s.Name)
	}
}

func TestDefinitionFaultsComeAtOnce(t *testing.T) {
	d := nightly(func(d *Definition) {
		d.Name, d.Cron, d.Zone, d.MissedRuns, d.Overlap, d.Within = "a b", "x", "y", "perhaps", "pile",
			plan.Duration(8*24*time.Hour)
		d.Hooks = []string{"h", "h", "no hook"}
		d.Matrix.Text = ""
	})
	err := d.Check()
	for _, want := range []string{`"a b"`, `"x"`, `"y"`, `"perhaps"`, `"pile"`, "192h", "given twice", `"no hook"`,
		"0 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not contain %s", err, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	good, _ := fixture(t, nil)
	newer := good.Clone()
	newer.Version = plan.RecordFormat + 1
	wrong := good.Clone()
	wrong.Zone = "Nowhere"
	for i, s := range []Schedule{newer, wrong} {
		text, _ := json.Marshal(s)
		if _, err := Read(bytes.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), []string{fmt.Sprintf("format %d: this program reads format %d",
				plan.RecordFormat+1, plan.RecordFormat), "Nowhere"}[i]) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, err := Read(strings.NewReader("{")); err == nil {
		t.Error("half a schedule was read")
	}
}

func TestCloneSharesNothing(t *testing.T) {
	s, slots := fixture(t, func(d *Definition) { d.Overlap = OverlapQueueOne })
	now := at(t, "2026-11-02T02:00:00Z")
	s.Due(slots, now)
	ran(t, s, now)
	s.Due(slots, now.AddDate(0, 0, 1))
	s.Due(slots, now.AddDate(0, 0, 2))
	before, _ := json.Marshal(s)
	c := s.Clone()
	c.History[0].Hooks[0].State, c.Waiting.Missed = CallFailed, 9
	c.Current.State, c.Current.Problems = Submitted, append(c.Current.Problems, "x")
	if after, _ := json.Marshal(s); string(after) != string(before) {
		t.Errorf("a change of the copy shows in\n%s, which was\n%s", after, before)
	}
}

// For any order of events there are never two runs at the same time, no slot runs twice, and slots run in order.
func TestAnyOrderOfEvents(t *testing.T) {
	for seed := range 60 {
		random := newRandom(seed)
		s, slots := fixture(t, func(d *Definition) {
			d.Cron, d.MissedRuns, d.Overlap = "*/7 * * * *", []string{MissedSkip, MissedOnce}[random(2)],
				[]string{OverlapSkip, OverlapQueueOne}[random(2)]
		})
		now, fired := s.Added, 0
		for step := range 300 {
			now = now.Add([]time.Duration{0, time.Second, time.Minute, 7 * time.Minute, time.Hour, -time.Minute,
				-3 * time.Hour, 30 * time.Hour}[random(8)])
			before := s.Current
			switch random(8) {
			case 0:
				s.Pause("me", now)
			case 1:
				s.Resume("me", now)
			case 2:
				_ = s.Ask("me", now)
			case 3, 4:
				if s.Current != nil {
					ran(t, s, now)
				}
			default:
				s.Due(slots, now)
			}
			if before != nil && s.Current != nil && s.Current.Run != before.Run {
				t.Fatalf("seed %d, step %d: %s replaced %s, which was not over", seed, step, s.Current.Run, before.Run)
			}
			if s.Current != nil && s.Current != before {
				fired++
				if slices.ContainsFunc(s.History, func(e Entry) bool { return e.Run == s.Current.Run }) {
					t.Fatalf("seed %d, step %d: %s was begun twice", seed, step, s.Current.Run)
				}
			}
		}
		if fired == 0 {
			t.Fatalf("seed %d: nothing ever fired", seed)
		}
	}
}

// newRandom is a small random generator whose sequence does not depend on the Go version.
func newRandom(seed int) func(int) int {
	x := uint64(seed)*2654435761 + 88172645463325252
	return func(n int) int {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		return int(x % uint64(n))
	}
}

func ExampleSchedule_RunID() {
	s := New(Definition{Name: "Nightly.Full"}, "id", "me@here", time.Time{})
	fmt.Println(s.RunID(Slot{At: time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)}))
	// Output: 20261122-010000-nightly-full-2c5729e6
}

// The clock is set back by more than an hour while the run of a slot is active or waits. The slot comes again, and is
// the same one.
func TestClockPutBackUnderARun(t *testing.T) {
	for _, policy := range []string{OverlapSkip, OverlapQueueOne} {
		s, slots := fixture(t, func(d *Definition) { d.Overlap = policy })
		now := at(t, "2026-11-02T02:00:10Z")
		s.Due(slots, now)
		run := s.Current.Run
		s.Begin(run, 1, now)
		s.Submit(run)
		again := func(after string) {
			t.Helper()
			s.Due(slots, at(t, "2026-11-02T00:30:00Z"))
			s.Due(slots, at(t, "2026-11-02T02:00:20Z"))
			if s.Current == nil || s.Current.Run != run || len(s.History) > 0 {
				t.Errorf("%s, %s: current %+v, history %+v: want run %s alone", policy, after, s.Current, s.History,
					run)
			}
		}
		if again("under way"); s.Waiting != nil {
			t.Errorf("%s: %+v waits behind itself", policy, s.Waiting)
		}
		if policy == OverlapSkip {
			continue
		}
		s.Due(slots, at(t, "2026-11-03T02:00:10Z"))
		waits := *s.Waiting
		again("with one that waits")
		s.Due(slots, at(t, "2026-11-03T02:00:20Z"))
		if s.Waiting == nil || *s.Waiting != waits || len(s.History) > 0 {
			t.Errorf("%+v waits, history %+v: want the slot that waited, and nothing skipped", s.Waiting, s.History)
		}
	}
}
