package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/process"
)

const nightly = `package matrix

name: "nightly"
brokers: loop: {driver: "loopback", options: name: "nightly"}
axes: mode: ["confirm-each"]
cell: {
	axis: _
	publishers: {mode: axis.mode, count: 50}
	consumers: nodes: 0
	warmup: "0s"
}
tables: [{rows: ["mode"], values: ["publish.rate"]}]
`

// scheduleFleet is a fleet of real processes on its own NATS server, for tests of schedules.
type scheduleFleet struct {
	t          *testing.T
	dir, url   string
	conn       *wire.Client
	controller *process.Process
}

// newScheduleFleet starts the control plane and an agent. hooks is the text of the controllers' hooks file.
func newScheduleFleet(t *testing.T, hooks string) *scheduleFleet {
	t.Helper()
	n := &scheduleFleet{t: t, dir: t.TempDir()}
	plane, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true,
		StoreDir: filepath.Join(n.dir, "nats"), MaxPayload: wire.MaxMessage, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	plane.Start()
	t.Cleanup(plane.Shutdown)
	n.url = plane.ClientURL()
	n.write("hooks.json", hooks)
	n.write("nightly.cue", nightly)
	if n.conn, err = wire.DialClient(t.Context(), n.url, wire.Auth{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.conn.Close)
	n.startController()
	n.daemon("agent", "--server", n.url, "--name", "a1", "--dir", filepath.Join(n.dir, "a1"))
	n.await("a listed agent", func() bool {
		agents, err := n.conn.Agents(t.Context())
		return err == nil && len(agents) == 1
	})
	return n
}

func (n *scheduleFleet) write(file, text string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, file), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// daemon starts a program, which is killed at the end of the test.
func (n *scheduleFleet) daemon(program string, args ...string) *process.Process {
	n.t.Helper()
	return start(n.t, n.dir, program, args...)
}

// startController starts a controller.
func (n *scheduleFleet) startController() {
	n.t.Helper()
	n.controller = n.daemon("controller", "--server", n.url, "--dir", "state", "--hooks", "hooks.json")
}

func (n *scheduleFleet) ctl(args ...string) {
	n.t.Helper()
	c := exec.Command(filepath.Join(programs, "ctl"), args...)
	c.Dir, c.Env = n.dir, append(os.Environ(), "LOCKSTEP_SERVER="+n.url)
	if out, err := c.CombinedOutput(); err != nil {
		n.t.Fatalf("ctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// await waits for a condition that takes seconds on an idle machine.
func (n *scheduleFleet) await(what string, reached func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !reached(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("timed out after 2 min waiting for %s", what)
		}
	}
}

// awaitEntries waits until a schedule has this number of entries and all their hooks were called.
func (n *scheduleFleet) awaitEntries(name string, entries int) schedule.Schedule {
	n.t.Helper()
	var s schedule.Schedule
	n.await(fmt.Sprintf("entry %d of %s", entries, name), func() bool {
		stored, err := n.conn.Schedule(n.t.Context(), name)
		s = stored.Schedule
		return err == nil && len(s.History) >= entries && s.Current == nil && s.Asked == nil && s.Uncalled() == nil
	})
	return s
}

// A hook with "compare" receives the complete copies of its run and of the previous one. Its output is a part of the
// notice that the webhook receives.
func TestHooksGetTheCopies(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var notices []schedule.Notice
	chat := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		var n schedule.Notice
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &n)
		}
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		notices = append(notices, n)
	}))
	defer chat.Close()
	n := newScheduleFleet(t, fmt.Sprintf(`{"hooks": {
	"chat": {"webhook": %q},
	"compare": {"command": ["sh", "-c", "cat \"$LOCKSTEP_PREVIOUS_DIR/run.json\" \"$LOCKSTEP_RUN_DIR/run.json\" >/dev/null 2>&1 && echo '{\"both\": true}' || echo '{\"both\": false}'"], "compare": true}
}}`, chat.URL))
	n.ctl("schedule", "add", "--cron", "0 2 1 1 *", "--tz", "UTC", "--hook", "chat", "--hook", "compare", "nightly.cue")
	for i := range 2 {
		n.ctl("schedule", "run", "nightly")
		n.awaitEntries("nightly", i+1)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(notices) != 2 {
		t.Fatalf("notices: got %d, want 2", len(notices))
	}
	first, second := notices[0], notices[1]
	if first.PreviousDirectory != "" || string(first.Comparison) != `{"compare":{"both":false}}` {
		t.Errorf("notice of the first run: got %+v, want no previous directory", first)
	}
	if second.PreviousDirectory != first.Directory || string(second.Comparison) != `{"compare":{"both":true}}` {
		t.Errorf("notice of the second run: got %+v, want a comparison with both directories", second)
	}
	for _, notice := range notices {
		run, err := runs.Open("", notice.Directory)
		if err != nil {
			t.Errorf("directory %q: %v", notice.Directory, err)
			continue
		}
		if outcomes, err := run.Outcomes(); err != nil || run.Plan().ID != notice.Run || len(outcomes) != 1 ||
			!filepath.IsAbs(notice.Directory) {
			t.Errorf("copy in %s: got run %s with %d outcomes, %v, want an absolute path and run %s with 1 outcome",
				notice.Directory, run.Plan().ID, len(outcomes), err, notice.Run)
		}
	}
}

// Controllers are killed at arbitrary times between the storage of a slot and the call of its hook. Each slot has
// exactly one run, and its hook is called at least once, always with the same key.
func TestSchedulesOutliveKilledControllers(t *testing.T) {
	t.Parallel()
	rounds, schedules := 3, 5
	if os.Getenv("LOCKSTEP_LONG") != "" {
		rounds = 10 // 50 runs: all of them keep their streams
	}
	n := newScheduleFleet(t, `{"hooks": {"count": {"command": ["sh", "-c", "echo $LOCKSTEP_KEY >>called"]}}}`)
	var names []string
	for i := range schedules {
		names = append(names, fmt.Sprintf("s%d", i))
		n.ctl("schedule", "add", "--name", names[i], "--cron", "0 2 1 1 *", "--tz", "UTC", "--hook", "count",
			"nightly.cue")
	}
	random := rand.New(rand.NewPCG(11, 17))
	for round := range rounds {
		n.requestAll(names)
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		n.controller.Kill()
		n.startController()
		for _, name := range names {
			n.awaitEntries(name, round+1)
		}
	}
	var keys, ids []string
	for _, name := range names {
		s := n.awaitEntries(name, rounds)
		if len(s.History) != rounds {
			t.Errorf("entries of %s: got %d, want one for each of %d slots", name, len(s.History), rounds)
		}
		for _, e := range s.History {
			if e.State != schedule.Done || e.Tasks.Total() != 1 {
				t.Errorf("%s: entry of run %s: got state %s (%s) and tasks %+v, want done with 1 task", name, e.Run,
					e.State, e.Why, e.Tasks)
			}
			keys, ids = append(keys, s.ID+"/"+e.Run+"/count"), append(ids, e.Run)
			if got := n.countSubmissions(e.Run); got != 1 {
				t.Errorf("submissions of run %s: got %d, want 1", e.Run, got)
			}
		}
	}
	n.checkRuns(ids)
	text, err := os.ReadFile(filepath.Join(n.dir, "called"))
	called := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(text)))))
	slices.Sort(keys)
	if err != nil || !slices.Equal(called, keys) {
		t.Errorf("keys of the called hooks: got %v, %v, want %v", called, err, keys)
	}
}

// requestAll requests a run of every schedule at the same time, like "ctl schedule run".
func (n *scheduleFleet) requestAll(names []string) {
	n.t.Helper()
	for _, name := range names {
		n.await("the slot of "+name, func() bool {
			_, err := n.conn.EditSchedule(n.t.Context(), name,
				func(s *schedule.Schedule) error { return s.Ask("me@test", time.Now()) })
			return err == nil
		})
	}
}

// countSubmissions returns the number of ended submissions of a run.
func (n *scheduleFleet) countSubmissions(run string) int {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	ended := map[uint64]bool{}
	if _, err := n.conn.Read(ctx, wire.RecordQuery{Run: run}, func(e wire.Entry) error {
		if e.Event != nil && e.Event.End != nil {
			ended[e.Event.End.Submission] = true
		}
		return nil
	}); err != nil {
		n.t.Errorf("read the record of %s: %v", run, err)
	}
	return len(ended)
}

func (n *scheduleFleet) checkRuns(ids []string) {
	n.t.Helper()
	all, err := n.conn.Runs(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	var got []string
	for _, r := range all {
		got = append(got, r.Run)
	}
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		n.t.Errorf("runs of the fleet: got %v, want those of the slots, %v", got, ids)
	}
}
