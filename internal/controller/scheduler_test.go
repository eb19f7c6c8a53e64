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

// manualClock is a clock that the test sets.
type manualClock struct {
	mu  sync.Mutex
	now time.Time
}

func newManualClock(now string) *manualClock {
	t, err := time.Parse(time.RFC3339, now)
	if err != nil {
		panic(err)
	}
	return &manualClock{now: t}
}

func (c *manualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) advance(d time.Duration) {
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

// newScheduleFleet returns a lab with a clock that the test sets. Its control plane is used over the network, as with
// schedules.
func newScheduleFleet(t *testing.T, agents ...string) *localFleet {
	t.Helper()
	l := &localFleet{t: t, cfg: wire.ServerConfig{Shared: true}, agents: map[string]*localAgent{}, dir: t.TempDir()}
	l.clock = newManualClock("2026-11-21T00:00:00Z")
	l.config.Clock = l.clock.Now
	l.startControlPlane()
	for _, name := range agents {
		l.startAgent(name)
	}
	return l
}

// addSchedule adds an hourly schedule.
func (l *localFleet) addSchedule(name string, change func(*schedule.Definition)) {
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

// awaitSchedule waits until a schedule is in the required state.
func (l *localFleet) awaitSchedule(name, what string, is func(schedule.Schedule) bool) schedule.Schedule {
	l.t.Helper()
	var kept wire.KeptSchedule
	var err error
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if kept, err = l.client.Schedule(l.t.Context(), name); err == nil && is(kept.Schedule) {
			return kept.Schedule
		}
		if time.Now().After(deadline) {
			text, _ := json.MarshalIndent(kept.Schedule, "", " ")
			l.t.Fatalf("schedule %s did not reach the state in time: %s (error %v)\n%s", name, what, err, text)
		}
	}
}

func hasEntries(n int) func(schedule.Schedule) bool {
	return func(s schedule.Schedule) bool { return len(s.History) >= n && s.Uncalled() == nil && s.Current == nil }
}

// editSchedule changes a schedule in the store.
func (l *localFleet) editSchedule(name string, change func(*schedule.Schedule)) {
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

// webhookServer stores posted notifications.
type webhookServer struct {
	mu     sync.Mutex
	posts  []schedule.Notice
	keys   []string
	auth   []string
	reject int // number of first requests to reject
}

func (w *webhookServer) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	var n schedule.Notice
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reject > 0 {
		w.reject--
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

// faultyHost panics from the second read of the variable FAULTY on, as a defect of Lockstep in a call of a hook would.
type faultyHost struct {
	plan.Host
	read bool
}

func (f *faultyHost) Getenv(name string) (string, error) {
	if name != "FAULTY" {
		return f.Host.Getenv(name)
	}
	if f.read {
		panic("a faulty host")
	}
	f.read = true // by NewHooks
	return "value", nil
}

func newHooks(t testing.TB, all ...plan.Hook) *controller.Hooks {
	t.Helper()
	for i := range all {
		all[i].Timeout = plan.Duration(30 * time.Second)
		all[i].Backoff = plan.Duration(10 * time.Millisecond)
	}
	h, err := controller.NewHooks(all, &faultyHost{Host: drivers.FullAccess()})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// In each of two slots, a run of the matrix is started and its outcomes are counted. Later hooks receive the output of
// the hook that compares. Each run has a reference to the previous one.
func TestScheduleFires(t *testing.T) {
	t.Setenv("LOCKSTEP_TEST_TOKEN", "hunter2secret")
	t.Setenv("CHAT_TOKEN", "hunter2secret")
	w := &webhookServer{reject: 2}
	server := httptest.NewServer(w)
	server.Config.SetKeepAlivesEnabled(false) // virtual time does not advance while a connection is open
	defer server.Close()
	wiretest.AloneInVirtualTime(t, func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out")
		l := newScheduleFleet(t, "a1", "a2")
		l.cancelController()
		l.controllers.Wait()
		l.config.Hooks = newHooks(t,
			plan.Hook{Name: "chat", Webhook: server.URL + "/in",
				Headers: map[string]string{"Authorization": "Bearer ${env:CHAT_TOKEN}"}, Retries: 3},
			plan.Hook{Name: "compare", Command: []string{"sh", "-c", `echo '{"slower": 3}'`}, Compare: true},
			plan.Hook{Name: "file", Command: []string{"sh", "-c",
				`{ echo "$LOCKSTEP_RUN $LOCKSTEP_PREVIOUS $LOCKSTEP_STATE"; env; cat; echo; } >>` + out}},
			plan.Hook{Name: "broken", Command: []string{"sh", "-c", `echo no "$LOCKSTEP_RUN" >&2; exit 3`}},
			plan.Hook{Name: "no-output", Command: []string{"false"}},
			plan.Hook{Name: "panic", Webhook: server.URL + "/in", Headers: map[string]string{"X": "${env:FAULTY}"}})
		l.startController()
		l.awaitAgents(2)
		l.addSchedule("nightly", func(d *schedule.Definition) {
			d.Hooks = []string{"chat", "file", "broken", "no-output", "panic", "absent", "compare"}
		})
		l.clock.advance(30 * time.Minute)
		time.Sleep(10 * time.Second) // virtual time, in which the controller checks its schedules
		l.awaitSchedule("nightly", "the schedule", func(s schedule.Schedule) bool {
			return s.Current == nil &&
				len(s.History) == 0
		})
		l.clock.advance(30 * time.Minute)
		first := l.awaitSchedule("nightly", "the first run", hasEntries(1)).History[0]
		l.clock.advance(time.Hour)
		s := l.awaitSchedule("nightly", "the second run", hasEntries(2))
		second := s.History[1]

		if first.State != schedule.Done || first.Tasks != (schedule.Tasks{Valid: 2}) || first.Previous != "" ||
			second.Previous != first.Run || second.Run == first.Run {
			t.Errorf("got first entry %+v, second %+v, want done with 2 valid tasks, and the first run as previous",
				first, second)
		}
		var calls []string
		for _, c := range second.Hooks {
			calls = append(calls, c.Hook+" "+string(c.State)+" "+c.Why)
		}
		if got := strings.Join(calls, "\n"); got != "chat done \nfile done \nbroken failed run command: exit status 3: no "+
			second.Run+
			"\nno-output failed run command: exit status 1 (no output on standard error)\npanic failed internal error of Lockstep; please report it: hook panic: a faulty host\nabsent failed unknown hook \"absent\"; add it to the --hooks file of the controller\ncompare done " {
			t.Errorf("calls of hooks: got\n%s", got)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.posts) != 2 || first.Hooks[0].Attempts != 3 {
			t.Fatalf("got %d posts, the first after %d attempts, want 2, 3", len(w.posts), first.Hooks[0].Attempts)
		}
		if n := w.posts[1]; n.Run != second.Run || n.Previous != first.Run || n.Schedule != "nightly" ||
			n.Slot != "2026-11-21T02:00:00Z" || n.Tasks.Valid != 2 ||
			string(n.Comparison) != `{"compare":{"slower":3}}` || n.Key != w.keys[1] || w.keys[0] == w.keys[1] ||
			w.auth[1] != "Bearer hunter2secret" {
			t.Errorf("second post: got %+v, keys %v, authorizations %v", n, w.keys, w.auth)
		}
		text, err := os.ReadFile(out)
		if err != nil || !strings.Contains(string(text), second.Run+" "+first.Run+" done\n") ||
			!strings.Contains(string(text), `"comparison":{"compare":{"slower":3}}`) {
			t.Errorf("input of the command: got %s, error %v, want the runs and the comparison", text, err)
		}
		if strings.Contains(string(text), "LOCKSTEP_TEST_TOKEN") {
			t.Error("the environment of the command contains variables of the controller")
		}
		if text, _ := json.Marshal(s); bytes.Contains(text, []byte("hunter2secret")) {
			t.Errorf("the history contains a secret: %s", text)
		}
		known, err := l.client.Hooks(t.Context())
		if err != nil || !slices.Equal(known, []string{"chat", "compare", "file", "broken", "no-output", "panic"}) {
			t.Errorf("listed hooks: got %v, error %v", known, err)
		}
	})
}

// A controller may be killed at any point. The next one continues from the stored state, with one run per slot.
func TestScheduleContinuesFromAnyState(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newScheduleFleet(t, "a1", "a2")
		l.awaitAgents(2)
		l.cancelController()
		l.controllers.Wait()
		slots, err := schedule.NewTimetable("0 * * * *", "UTC")
		if err != nil {
			t.Fatal(err)
		}
		// withCurrent adds a schedule with a current run that must be created.
		withCurrent := func(name string) string {
			l.addSchedule(name, func(d *schedule.Definition) { d.Hooks = []string{"count"} })
			run := ""
			l.editSchedule(name, func(s *schedule.Schedule) {
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
			p := newRun(small, small)
			p.ID, p.Agents = run, 2
			if err := lease.SubmitOnce(t.Context(), wire.Submission{Run: p, Schedule: name}); err != nil {
				t.Fatal(err)
			}
		}
		runs := map[string]string{"stored": withCurrent("stored"), "creating": withCurrent("creating"),
			"submitted": withCurrent("submitted"), "noted": withCurrent("noted"), "given-up": withCurrent("given-up")}
		now := l.clock.Now()
		l.editSchedule("creating", func(s *schedule.Schedule) { s.Begin(runs["creating"], 1, now) })
		submit(runs["submitted"], "submitted") // killed before the submission was stored in the schedule
		submit(runs["noted"], "noted")
		l.editSchedule("noted", func(s *schedule.Schedule) { s.Submit(runs["noted"]) })
		l.editSchedule("given-up", func(s *schedule.Schedule) {
			for epoch := range uint64(3) {
				s.Begin(runs["given-up"], epoch, now)
			}
		})
		out := filepath.Join(t.TempDir(), "out")
		l.config.Hooks = newHooks(t, plan.Hook{Name: "count",
			Command: []string{"sh", "-c", "echo $LOCKSTEP_KEY >>" + out}})
		l.clock.advance(time.Hour)
		lease.Lease.Resign(t.Context())
		l.startController()
		for name, run := range runs {
			s := l.awaitSchedule(name, "the run of "+name, hasEntries(1))
			want := schedule.Done
			if name == "given-up" {
				want = schedule.MatrixError
			}
			if e := s.History[0]; len(s.History) != 1 || e.Run != run || e.State != want {
				t.Errorf("%s: got history %+v, want one entry with state %s", name, s.History, want)
			}
			if want != schedule.Done {
				continue
			}
			if accepted := l.countAccepted(run); accepted != 1 {
				t.Errorf("%s: got %d executions of its run, want 1", name, accepted)
			}
		}
		text, err := os.ReadFile(out)
		if keys := strings.Fields(string(text)); err != nil || len(keys) != len(runs) ||
			len(slices.Compact(slices.Sorted(slices.Values(keys)))) != len(runs) {
			t.Errorf("keys of hook calls: got %q, error %v, want one for each of %d runs", text, err, len(runs))
		}
	})
}

// countAccepted returns how often a controller started a run.
func (l *localFleet) countAccepted(run string) (n int) {
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
		l := newScheduleFleet(t, "a1", "a2")
		l.awaitAgents(2)
		out := filepath.Join(t.TempDir(), "out")
		l.cancelController()
		l.controllers.Wait()
		l.config.Hooks = newHooks(t, plan.Hook{Name: "count",
			Command: []string{"sh", "-c", "echo $LOCKSTEP_KEY >>" + out}})
		l.addSchedule("hourly", func(d *schedule.Definition) { d.Hooks = []string{"count"} })
		random := rand.New(rand.NewPCG(7, 7))
		const slots = 3
		for n := 1; n <= slots; n++ {
			l.clock.advance(time.Hour)
			// after three that ended while creating a run, the matrix would be rejected
			for range map[bool]int{true: 1, false: 2}[n == 2] {
				l.startController()
				time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
				l.cancelController()
				l.controllers.Wait()
			}
			l.startController()
			if n == 2 { // a crash; the next controller leads only when the lease has expired
				time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
				l.crashController()
				l.startController()
			}
			l.awaitSchedule("hourly", fmt.Sprintf("run %d", n), hasEntries(n))
			l.cancelController()
			l.controllers.Wait()
		}
		l.startController()
		s := l.awaitSchedule("hourly", "the end", hasEntries(slots))
		var keys []string
		for _, e := range s.History {
			if e.State != schedule.Done {
				t.Errorf("entry at %s: got state %s, want done: %s", e.At, e.State, e.Why)
			}
			keys = append(keys, s.ID+"/"+e.Run+"/count")
		}
		if len(s.History) != slots {
			t.Errorf("got %d entries, want %d: one per slot", len(s.History), slots)
		}
		text, err := os.ReadFile(out)
		called := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(text)))))
		slices.Sort(keys)
		if err != nil || !slices.Equal(called, keys) {
			t.Errorf("keys of hook calls: got %v, error %v, want %v", called, err, keys)
		}
	})
}

// While a run is still running in later slots, the policy skips these slots, or queues one.
func TestScheduleOverlaps(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newScheduleFleet(t, "a1", "a2")
		l.awaitAgents(2)
		long := strings.Replace(tiny, "rate: 1000, count: 50", "rate: 100", 1)
		long = strings.Replace(long, `measure: "5s"`, `measure: "100s"`, 1)
		for _, policy := range []string{schedule.OverlapSkip, schedule.OverlapQueueOne} {
			l.addSchedule(policy, func(d *schedule.Definition) { d.Overlap, d.Matrix.Text = policy, long })
		}
		l.clock.advance(time.Hour)
		for _, policy := range []string{schedule.OverlapSkip, schedule.OverlapQueueOne} {
			l.awaitSchedule(policy, "its run", func(s schedule.Schedule) bool {
				return s.Current != nil &&
					s.Current.State == schedule.Submitted
			})
		}
		for range 2 {
			l.clock.advance(time.Hour)
			now := l.clock.Now()
			for _, policy := range []string{schedule.OverlapSkip, schedule.OverlapQueueOne} {
				l.awaitSchedule(policy, "the next slot", func(s schedule.Schedule) bool { return s.Since.Equal(now) })
			}
		}
		runs, err := l.client.Runs(t.Context())
		if err != nil || len(runs) != 2 {
			t.Errorf("got %d runs, error %v, want 2: one per schedule", len(runs), err)
		}
		skipped := map[string]int{schedule.OverlapSkip: 2, schedule.OverlapQueueOne: 1}
		for policy, want := range skipped {
			s := l.awaitSchedule(policy, "its history",
				func(s schedule.Schedule) bool { return len(s.History) == want })
			if (s.Waiting != nil) != (policy == schedule.OverlapQueueOne) ||
				!strings.Contains(s.History[0].Why, s.Current.Run) {
				t.Errorf("%s: got waiting %+v, history %+v, want a waiting slot only with %s", policy, s.Waiting,
					s.History, schedule.OverlapQueueOne)
			}
			l.editSchedule(policy, func(s *schedule.Schedule) { s.Pause("me", l.clock.Now()) })
			if err := l.client.Cancel(t.Context(), s.Current.Run, ""); err != nil {
				t.Fatal(err)
			}
		}
		for policy := range skipped {
			s := l.awaitSchedule(policy, "the end", func(s schedule.Schedule) bool { return s.Current == nil })
			if e := s.History[len(s.History)-1]; e.State != schedule.State(wire.EndInterrupted) {
				t.Errorf("%s: entry of the cancelled run: got %+v, want interrupted", policy, e)
			}
		}
	})
}

// A run that cannot start is an entry with its reason, and hooks receive it. The next slot is tried, and the controller
// continues.
func TestScheduleOfAFaultyMatrix(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newScheduleFleet(t, "a1")
		l.awaitAgents(1)
		faulty := map[string]string{
			"nonsense": `name: "x`, "unknown-driver": strings.Replace(tiny, `"loopback"`, `"gone"`, 1),
			"secret": strings.Replace(tiny, `options: name: "tiny"`, `options: {name: "tiny", password: "hunter2"}`, 1),
			"computed-secret": strings.Replace(tiny, `options: name: "tiny"`,
				`via: "amqp://u:" + "hunter2" + "@127.0.0.1:1"`, 1),
		}
		for name, text := range faulty {
			l.addSchedule(name, func(d *schedule.Definition) { d.Matrix.Text = text })
		}
		l.addSchedule("too-many-agents",
			func(d *schedule.Definition) { d.Matrix.Set = []string{"cell.publishers.nodes=7"} })
		l.clock.advance(time.Hour)
		for name := range faulty {
			s := l.awaitSchedule(name, "its entry", hasEntries(1))
			if e := s.History[0]; e.State != schedule.MatrixError || e.Why == "" || strings.Contains(e.Why, "hunter2") {
				t.Errorf("%s: got entry %+v, want faulty with the reason, without the secret", name, e)
			}
		}
		if s := l.awaitSchedule("too-many-agents", "its entry",
			hasEntries(1)); s.History[0].State != schedule.State(wire.EndNoAgents) || s.History[0].Why == "" {
			t.Errorf("too many agents: got entry %+v, want no-agents with the reason", s.History[0])
		}
		l.editSchedule("nonsense", func(s *schedule.Schedule) { s.Matrix.Text, s.Matrix.Set = tiny, nil })
		l.startAgent("a2")
		l.awaitAgents(2)
		l.clock.advance(time.Hour)
		if s := l.awaitSchedule("nonsense", "the next slot", hasEntries(2)); s.History[1].State != schedule.Done {
			t.Errorf("entry after the matrix was corrected: got %+v, want done", s.History[1])
		}
	})
}

// A removed schedule starts no run, and an unreadable one does not affect others.
func TestScheduleRemovedAndBroken(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newScheduleFleet(t, "a1", "a2")
		l.awaitAgents(2)
		l.addSchedule("removed", nil)
		l.addSchedule("good", nil)
		l.addSchedule("asked", func(d *schedule.Definition) { d.Cron = "0 0 1 1 *" })
		l.editSchedule("asked", func(s *schedule.Schedule) {
			s.Pause("me", l.clock.Now())
			if err := s.Ask("me", l.clock.Now()); err != nil {
				t.Error(err)
			}
		})
		if s := l.awaitSchedule("asked", "its run", hasEntries(1)); !s.History[0].Asked ||
			s.History[0].State != schedule.Done {
			t.Errorf("entry of a requested run: got %+v, want done", s.History[0])
		}
		kept, err := l.client.Schedule(t.Context(), "removed")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.client.RemoveSchedule(t.Context(), "removed", kept.Revision-1); err == nil {
			t.Error("RemoveSchedule with an old revision: got no error")
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
		l.awaitSchedule("good", "its run", hasEntries(1))
		all, err := l.client.Schedules(t.Context())
		if err != nil || len(all) != 3 || all[0].Name != "asked" || all[2].Name != "newer" || all[2].Err == nil {
			t.Errorf("schedules: got %d, error %v, want 3, the last one unreadable", len(all), err)
		}
		runs, err := l.client.Runs(t.Context())
		if err != nil || len(runs) != 2 || runs[0].Schedule != "asked" || runs[1].By != "me@test" {
			t.Errorf("runs: got %+v, error %v, want those of asked and good, with their users", runs, err)
		}
	})
}
