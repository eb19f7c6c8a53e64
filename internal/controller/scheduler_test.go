package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/test/wiretest"
)

// handClock is a clock that the test sets.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func newHandClock(now string) *handClock {
	t, err := time.Parse(time.RFC3339, now)
	if err != nil {
		panic(err)
	}
	return &handClock{now: t}
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const tiny = `
name: "tiny"
brokers: loop: {driver: "loopback", options: name: "tiny"}
axes: mode: ["confirm-window", "confirm-each"]
cell: {
	axis: _
	publishers: {mode: axis.mode, rate: 1000, count: 50}
	warmup: "0s"
	measure: "5s"
}
tables: [{rows: ["mode"], values: ["publish.rate"]}]
`

// newScheduleLab returns a lab with a clock that the test sets. Its control plane is used over the network, as with
// schedules.
func newScheduleLab(t *testing.T, agents ...string) *lab {
	t.Helper()
	l := &lab{t: t, cfg: wire.ServerConfig{Shared: true}, agents: map[string]*labAgent{}, dir: t.TempDir()}
	l.clock = newHandClock("2026-11-21T00:00:00Z")
	l.config.Clock = l.clock.Now
	l.open()
	for _, name := range agents {
		l.start(name)
	}
	return l
}

// add adds an hourly schedule.
func (l *lab) add(name string, change func(*schedule.Definition)) {
	l.t.Helper()
	d := schedule.Definition{Name: name, Cron: "0 * * * *", Zone: "UTC", MissedRuns: schedule.MissedOnce,
		Within: plan.Duration(24 * time.Hour), Overlap: schedule.OverlapSkip,
		Matrix: schedule.Matrix{File: "tiny.cue", Path: "/somewhere/tiny.cue", Text: tiny}}
	if change != nil {
		change(&d)
	}
	if err := d.Check(); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.store.PutSchedule(l.t.Context(), schedule.New(d, "id-of-"+name, "me@test", l.clock.Now()),
		0); err != nil {
		l.t.Fatal(err)
	}
}

// schedule waits until a schedule is in the required state.
func (l *lab) schedule(name, what string, is func(schedule.Schedule) bool) schedule.Schedule {
	l.t.Helper()
	var kept wire.KeptSchedule
	var err error
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if kept, err = l.client.Schedule(l.t.Context(), name); err == nil && is(kept.Schedule) {
			return kept.Schedule
		}
		if time.Now().After(deadline) {
			text, _ := json.MarshalIndent(kept.Schedule, "", " ")
			l.t.Fatalf("%s has not come: %v\n%s", what, err, text)
		}
	}
}

func entries(n int) func(schedule.Schedule) bool {
	return func(s schedule.Schedule) bool { return len(s.History) >= n && s.Uncalled() == nil && s.Current == nil }
}

// edit changes a schedule in the store.
func (l *lab) edit(name string, change func(*schedule.Schedule)) {
	l.t.Helper()
	kept, err := l.store.Schedule(l.t.Context(), name)
	if err == nil {
		change(&kept.Schedule)
		_, err = l.store.PutSchedule(l.t.Context(), kept.Schedule, kept.Revision)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// webhooks stores posted notifications.
type webhooks struct {
	mu     sync.Mutex
	posts  []schedule.Notice
	keys   []string
	auth   []string
	refuse int // number of first requests to reject
}

func (w *webhooks) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	var n schedule.Notice
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse > 0 {
		w.refuse--
		http.Error(answer, "not now", http.StatusServiceUnavailable)
		return
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&n); err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	w.posts, w.keys, w.auth = append(w.posts, n), append(w.keys, r.Header.Get("Idempotency-Key")),
		append(w.auth, r.Header.Get("Authorization"))
}

func hooks(t testing.TB, all ...plan.Hook) *controller.Hooks {
	t.Helper()
	for i := range all {
		all[i].Timeout = plan.Duration(30 * time.Second)
		all[i].Backoff = plan.Duration(10 * time.Millisecond)
	}
	h, err := controller.NewHooks(all, drivers.FullAccess())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// In two slots, a run of the matrix is started, its outcomes are counted, the later hooks receive the comparison, and
// each run has a reference to the previous one.
func TestScheduleFires(t *testing.T) {
	t.Setenv("LOCKSTEP_TEST_TOKEN", "hunter2secret")
	t.Setenv("CHAT_TOKEN", "hunter2secret")
	w := &webhooks{refuse: 2}
	server := httptest.NewServer(w)
	server.Config.SetKeepAlivesEnabled(false) // time would stand still while a connection is open
	defer server.Close()
	wiretest.AloneInVirtualTime(t, func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out")
		l := newScheduleLab(t, "a1", "a2")
		l.stop()
		l.wg.Wait()
		l.config.Hooks = hooks(t,
			plan.Hook{Name: "chat", Webhook: server.URL + "/in",
				Headers: map[string]string{"Authorization": "Bearer ${env:CHAT_TOKEN}"}, Retries: 3},
			plan.Hook{Name: "compare", Command: []string{"sh", "-c", `echo '{"slower": 3}'`}, Compare: true},
			plan.Hook{Name: "file", Command: []string{"sh", "-c",
				`{ echo "$LOCKSTEP_RUN $LOCKSTEP_PREVIOUS $LOCKSTEP_STATE"; env; cat; echo; } >>` + out}},
			plan.Hook{Name: "broken", Command: []string{"sh", "-c", `echo no "$LOCKSTEP_RUN" >&2; exit 3`}},
			plan.Hook{Name: "mute", Command: []string{"false"}})
		l.control()
		l.await(2)
		l.add("nightly", func(d *schedule.Definition) {
			d.Hooks = []string{"chat", "file", "broken", "mute", "absent", "compare"}
		})
		l.clock.advance(30 * time.Minute)
		time.Sleep(10 * time.Second) // of virtual time, in which the controller looks at its schedules
		l.schedule("nightly", "the schedule", func(s schedule.Schedule) bool {
			return s.Current == nil &&
				len(s.History) == 0
		})
		l.clock.advance(30 * time.Minute)
		first := l.schedule("nightly", "the first run", entries(1)).History[0]
		l.clock.advance(time.Hour)
		s := l.schedule("nightly", "the second run", entries(2))
		second := s.History[1]

		if first.State != schedule.Done || first.Tasks != (schedule.Tasks{Valid: 2}) || first.Previous != "" ||
			second.Previous != first.Run || second.Run == first.Run {
			t.Errorf("first is %+v, second %+v", first, second)
		}
		var calls []string
		for _, c := range second.Hooks {
			calls = append(calls, c.Hook+" "+string(c.State)+" "+c.Why)
		}
		if got := strings.Join(calls, "\n"); got != "chat done \nfile done \nbroken failed run command: exit status 3: no "+
			second.Run+
			"\nmute failed run command: exit status 1 (no output on standard error)\nabsent failed unknown hook \"absent\"; add it to the --hooks file of the controller\ncompare done " {
			t.Errorf("hooks:\n%s", got)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.posts) != 2 || first.Hooks[0].Attempts != 3 {
			t.Fatalf("%d posts came, the first after %d attempts: want 2, and 3", len(w.posts), first.Hooks[0].Attempts)
		}
		if n := w.posts[1]; n.Run != second.Run || n.Previous != first.Run || n.Schedule != "nightly" ||
			n.Slot != "2026-11-21T02:00:00Z" || n.Tasks.Valid != 2 ||
			string(n.Comparison) != `{"compare":{"slower":3}}` || n.Key != w.keys[1] || w.keys[0] == w.keys[1] ||
			w.auth[1] != "Bearer hunter2secret" {
			t.Errorf("posted: %+v, keys %v, %v", n, w.keys, w.auth)
		}
		text, err := os.ReadFile(out)
		if err != nil || !strings.Contains(string(text), second.Run+" "+first.Run+" done\n") ||
			!strings.Contains(string(text), `"comparison":{"compare":{"slower":3}}`) {
			t.Errorf("the command got %s, %v", text, err)
		}
		if strings.Contains(string(text), "LOCKSTEP_TEST_TOKEN") {
			t.Error("the command got the controller's own variables")
		}
		if text, _ := json.Marshal(s); bytes.Contains(text, []byte("hunter2secret")) {
			t.Errorf("a secret is in the history: %s", text)
		}
		known, err := l.client.Hooks(t.Context())
		if err != nil || !slices.Equal(known, []string{"chat", "compare", "file", "broken", "mute"}) {
			t.Errorf("known hooks are %v, %v", known, err)
		}
	})
}

// A controller may be killed at any point. The next one continues from the stored state, with one run per slot.
func TestScheduleGoesOnFromAnyPoint(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newScheduleLab(t, "a1", "a2")
		l.await(2)
		l.stop()
		l.wg.Wait()
		slots, err := schedule.NewTimetable("0 * * * *", "UTC")
		if err != nil {
			t.Fatal(err)
		}
		// begun brings a schedule to the state in which a run must be created.
		begun := func(name string) string {
			l.add(name, func(d *schedule.Definition) { d.Hooks = []string{"count"} })
			run := ""
			l.edit(name, func(s *schedule.Schedule) {
				s.Due(slots, l.clock.Now().Add(time.Hour))
				run = s.Current.Run
			})
			return run
		}
		lease, err := l.store.Campaign(t.Context(), lease.Holder{Name: "killed", Instance: "killed"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		submit := func(run, name string) {
			small := func(c *plan.Cell) { c.Workload.Publishers.Nodes, c.Workload.Consumers.Nodes = 1, 1 }
			p := aRun(small, small)
			p.ID, p.Agents = run, 2
			if err := lease.SubmitOnce(t.Context(), wire.Submission{Run: p, Schedule: name}); err != nil {
				t.Fatal(err)
			}
		}
		runs := map[string]string{"stored": begun("stored"), "making": begun("making"), "submitted": begun("submitted"),
			"noted": begun("noted"), "given-up": begun("given-up")}
		now := l.clock.Now()
		l.edit("making", func(s *schedule.Schedule) { s.Begin(runs["making"], 1, now) })
		submit(runs["submitted"], "submitted") // killed before that was stored
		submit(runs["noted"], "noted")
		l.edit("noted", func(s *schedule.Schedule) { s.Submit(runs["noted"]) })
		l.edit("given-up", func(s *schedule.Schedule) {
			for epoch := range uint64(3) {
				s.Begin(runs["given-up"], epoch, now)
			}
		})
		out := filepath.Join(t.TempDir(), "out")
		l.config.Hooks = hooks(t, plan.Hook{Name: "count",
			Command: []string{"sh", "-c", "echo $LOCKSTEP_KEY >>" + out}})
		l.clock.advance(time.Hour)
		lease.Lease.Resign(t.Context())
		l.control()
		for name, run := range runs {
			s := l.schedule(name, "the run of "+name, entries(1))
			want := schedule.Done
			if name == "given-up" {
				want = schedule.Faulty
			}
			if e := s.History[0]; len(s.History) != 1 || e.Run != run || e.State != want {
				t.Errorf("%s: history is %+v, want one entry, %s", name, s.History, want)
			}
			if want != schedule.Done {
				continue
			}
			if accepted := l.accepted(run); accepted != 1 {
				t.Errorf("%s: its run was executed %d times", name, accepted)
			}
		}
		text, err := os.ReadFile(out)
		if keys := strings.Fields(string(text)); err != nil || len(keys) != len(runs) ||
			len(slices.Compact(slices.Sorted(slices.Values(keys)))) != len(runs) {
			t.Errorf("hooks were called for %q, %v: want each once", text, err)
		}
	})
}

// accepted returns how often a controller started a run.
func (l *lab) accepted(run string) (n int) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 20*time.Second)
	defer cancel()
	if _, err := l.client.Read(ctx, wire.RecordQuery{Run: run, Wait: true}, func(e wire.Entry) error {
		if e.Event != nil && e.Event.Kind == wire.RunAccepted {
			n++
		}
		return nil
	}); err != nil {
		l.t.Errorf("follow %s: %v", run, err)
	}
	return n
}

// Controllers end repeatedly at random times, one of them in a crash. Each slot has one run, and its hook is called at
// least once, always with the same key.
func TestScheduleOutlivesControllers(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newScheduleLab(t, "a1", "a2")
		l.await(2)
		out := filepath.Join(t.TempDir(), "out")
		l.stop()
		l.wg.Wait()
		l.config.Hooks = hooks(t, plan.Hook{Name: "count",
			Command: []string{"sh", "-c", "echo $LOCKSTEP_KEY >>" + out}})
		l.add("hourly", func(d *schedule.Definition) { d.Hooks = []string{"count"} })
		random := rand.New(rand.NewPCG(7, 7))
		const slots = 3
		for n := 1; n <= slots; n++ {
			l.clock.advance(time.Hour)
			// after three that ended while creating a run, the matrix would be rejected
			for range map[bool]int{true: 1, false: 2}[n == 2] {
				l.control()
				time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
				l.stop()
				l.wg.Wait()
			}
			l.control()
			if n == 2 { // a crash; the next controller leads only when the lease has expired
				time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
				l.crash()
				l.control()
			}
			l.schedule("hourly", fmt.Sprintf("run %d", n), entries(n))
			l.stop()
			l.wg.Wait()
		}
		l.control()
		s := l.schedule("hourly", "the end", entries(slots))
		var keys []string
		for _, e := range s.History {
			if e.State != schedule.Done {
				t.Errorf("%s: %s %s", e.At, e.State, e.Why)
			}
			keys = append(keys, s.ID+"/"+e.Run+"/count")
		}
		if len(s.History) != slots {
			t.Errorf("%d entries for %d slots", len(s.History), slots)
		}
		text, err := os.ReadFile(out)
		called := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(text)))))
		slices.Sort(keys)
		if err != nil || !slices.Equal(called, keys) {
			t.Errorf("called with %v, %v; want %v", called, err, keys)
		}
	})
}

// While a run lasts over later slots, the policy skips them or lets one wait. At most one waits.
func TestScheduleOverlaps(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newScheduleLab(t, "a1", "a2")
		l.await(2)
		long := strings.Replace(tiny, "rate: 1000, count: 50", "rate: 100", 1)
		long = strings.Replace(long, `measure: "5s"`, `measure: "100s"`, 1)
		for _, policy := range []string{schedule.OverlapSkip, schedule.OverlapQueueOne} {
			l.add(policy, func(d *schedule.Definition) { d.Overlap, d.Matrix.Text = policy, long })
		}
		l.clock.advance(time.Hour)
		for _, policy := range []string{schedule.OverlapSkip, schedule.OverlapQueueOne} {
			l.schedule(policy, "its run", func(s schedule.Schedule) bool {
				return s.Current != nil &&
					s.Current.State == schedule.Submitted
			})
		}
		for range 2 {
			l.clock.advance(time.Hour)
			now := l.clock.Now()
			for _, policy := range []string{schedule.OverlapSkip, schedule.OverlapQueueOne} {
				l.schedule(policy, "the next slot", func(s schedule.Schedule) bool { return s.Since.Equal(now) })
			}
		}
		runs, err := l.client.Runs(t.Context())
		if err != nil || len(runs) != 2 {
			t.Errorf("%d runs, %v: want one of each schedule", len(runs), err)
		}
		skipped := map[string]int{schedule.OverlapSkip: 2, schedule.OverlapQueueOne: 1}
		for policy, want := range skipped {
			s := l.schedule(policy, "its history", func(s schedule.Schedule) bool { return len(s.History) == want })
			if (s.Waiting != nil) != (policy == schedule.OverlapQueueOne) ||
				!strings.Contains(s.History[0].Why, s.Current.Run) {
				t.Errorf("%s: waiting %+v, history %+v", policy, s.Waiting, s.History)
			}
			l.edit(policy, func(s *schedule.Schedule) { s.Pause("me", l.clock.Now()) })
			if err := l.client.Cancel(t.Context(), s.Current.Run, ""); err != nil {
				t.Fatal(err)
			}
		}
		for policy := range skipped {
			s := l.schedule(policy, "the end", func(s schedule.Schedule) bool { return s.Current == nil })
			if e := s.History[len(s.History)-1]; e.State != schedule.State(wire.EndInterrupted) {
				t.Errorf("%s: the run that was cancelled is %+v", policy, e)
			}
		}
	})
}

// A run that cannot start is an entry with its reason, and hooks receive it. The next slot is tried, and the controller
// continues.
func TestScheduleOfAFaultyMatrix(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newScheduleLab(t, "a1")
		l.await(1)
		faulty := map[string]string{
			"nonsense": `name: "x`, "unknown-driver": strings.Replace(tiny, `"loopback"`, `"gone"`, 1),
			"secret": strings.Replace(tiny, `options: name: "tiny"`, `options: {name: "tiny", password: "hunter2"}`, 1),
			"computed-secret": strings.Replace(tiny, `options: name: "tiny"`,
				`via: "amqp://u:" + "hunter2" + "@127.0.0.1:1"`, 1),
		}
		for name, text := range faulty {
			l.add(name, func(d *schedule.Definition) { d.Matrix.Text = text })
		}
		l.add("too-many-agents", func(d *schedule.Definition) { d.Matrix.Set = []string{"cell.publishers.nodes=7"} })
		l.clock.advance(time.Hour)
		for name := range faulty {
			s := l.schedule(name, "its entry", entries(1))
			if e := s.History[0]; e.State != schedule.Faulty || e.Why == "" || strings.Contains(e.Why, "hunter2") {
				t.Errorf("%s: %+v, want faulty and why", name, e)
			}
		}
		if s := l.schedule("too-many-agents", "its entry",
			entries(1)); s.History[0].State != schedule.State(wire.EndNoAgents) || s.History[0].Why == "" {
			t.Errorf("%+v, want no-agents and how many", s.History[0])
		}
		l.edit("nonsense", func(s *schedule.Schedule) { s.Matrix.Text, s.Matrix.Set = tiny, nil })
		l.start("a2")
		l.await(2)
		l.clock.advance(time.Hour)
		if s := l.schedule("nonsense", "the next slot", entries(2)); s.History[1].State != schedule.Done {
			t.Errorf("%+v, want done", s.History[1])
		}
	})
}

// A removed schedule does not start, and an unreadable one does no harm.
func TestScheduleRemovedAndBroken(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newScheduleLab(t, "a1", "a2")
		l.await(2)
		l.add("removed", nil)
		l.add("good", nil)
		l.add("asked", func(d *schedule.Definition) { d.Cron = "0 0 1 1 *" })
		l.edit("asked", func(s *schedule.Schedule) {
			s.Pause("me", l.clock.Now())
			if err := s.Ask("me", l.clock.Now()); err != nil {
				t.Error(err)
			}
		})
		if s := l.schedule("asked", "its run", entries(1)); !s.History[0].Asked || s.History[0].State != schedule.Done {
			t.Errorf("%+v", s.History[0])
		}
		kept, err := l.client.Schedule(t.Context(), "removed")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.client.RemoveSchedule(t.Context(), "removed", kept.Revision-1); err == nil {
			t.Error("removed by whoever had not read it as it is")
		}
		if err := l.client.RemoveSchedule(t.Context(), "removed", kept.Revision); err != nil {
			t.Fatal(err)
		}
		newer := kept.Schedule
		newer.Name, newer.Version = "newer", plan.RecordFormat+1
		if _, err := l.store.PutSchedule(t.Context(), newer, 0); err != nil {
			t.Fatal(err)
		}
		l.clock.advance(time.Hour)
		l.schedule("good", "its run", entries(1))
		all, err := l.client.Schedules(t.Context())
		if err != nil || len(all) != 3 || all[0].Name != "asked" || all[2].Name != "newer" || all[2].Err == nil {
			t.Errorf("%d schedules, %v", len(all), err)
		}
		runs, err := l.client.Runs(t.Context())
		if err != nil || len(runs) != 2 || runs[0].Schedule != "asked" || runs[1].By != "me@test" {
			t.Errorf("%+v, %v: want the runs of asked and good, by whom", runs, err)
		}
	})
}
