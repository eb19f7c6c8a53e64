package controller_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/controller"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/test/wiretest"

	"github.com/nats-io/nats.go"
)

// deliberate is loopback with steps of one second, so that a test in virtual time can interrupt each step.
type deliberate struct{ drivers.Driver }

func init() {
	loopback, err := drivers.Lookup("loopback")
	if err != nil {
		panic(err)
	}
	drivers.Register(deliberate{loopback})
}

const deliberation = time.Second

func (d deliberate) Info() drivers.Info {
	info := d.Driver.Info()
	info.Name = "deliberate"
	return info
}

func (d deliberate) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	time.Sleep(deliberation)
	s, err := d.Driver.Open(ctx, options, env)
	return deliberateSession{s}, err
}

type deliberateSession struct{ drivers.Session }

func (s deliberateSession) Setup(ctx context.Context, t drivers.Topology) error {
	time.Sleep(deliberation)
	return s.Session.Setup(ctx, t)
}

func (s deliberateSession) Teardown(ctx context.Context, t drivers.Topology) error {
	time.Sleep(deliberation)
	return s.Session.Teardown(ctx, t)
}

func (s deliberateSession) Close() error {
	time.Sleep(deliberation)
	return s.Session.Close()
}

// TestAControllerKilledAnywhereIsReplaced crashes the controller just after an agent's report in the second task. No
// task is lost, the one in flight is repeated, and both attempts are in the record.
func TestAControllerKilledAnywhereIsReplaced(t *testing.T) {
	t.Parallel()
	for _, x := range []killing{
		{"open", func(m *nats.Msg) bool { // during the setup; the contact before the first task has no subject
			return arrival(wire.StepOpen)(m) && strings.Contains(string(m.Data), `"subject":`)
		}, 2},
		{"measure", func(m *nats.Msg) bool {
			return strings.Contains(m.Subject, ".snapshot.") && strings.Contains(string(m.Data), "lastSend")
		}, 2},
		{"stopped", arrival(wire.StepStart), 2},
		{"finish", arrival(wire.StepFinish), 2},     // during the teardown
		{"teardown", arrival(wire.StepTeardown), 2}, // while sessions are closed
		{"done", arrival(wire.StepDone), 3},         // the second task was over, and the third one had started
	} {
		t.Run(x.name, func(t *testing.T) { wiretest.InVirtualTime(t, x.replaced) })
	}
}

// killing is the place of a controller's crash.
type killing struct {
	name string
	when func(*nats.Msg) bool // report of an agent in the second task
	task int                  // in flight
}

// replaced crashes the controller there.
func (x killing) replaced(t *testing.T) {
	l := newLabOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
	slow := func(c *plan.Cell) { c.Broker.Driver = "deliberate" }
	run := aRun(slow, func(c *plan.Cell) {
		slow(c)
		c.Workload.Publishers.Count, c.Workload.Publishers.Rate, c.Workload.Measure = 0, 500,
			plan.Duration(2*time.Second)
	}, slow)
	second := run.Tasks()[1].ID
	reports := messages(t, l.foreigner(), "lockstep.agent.>")
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		next(t, reports, func(m *nats.Msg) bool {
			return strings.Contains(string(m.Data), `"task":"`+second+`"`) &&
				x.when(m)
		})
		time.Sleep(deliberation / 10)
		l.crash()
		l.control()
	}()
	defer func() { <-killed }()
	w := l.run(run, nil, nil)
	all := w.outcomes()
	if w.end.Reason != wire.EndDone || w.end.Ran != 3 || w.end.Failed != 0 || len(all) != 3 {
		t.Fatalf("%d outcomes, %+v; the follower saw %s", len(all), w.end, w.kinds())
	}
	for i, o := range all {
		if o.Task != run.Tasks()[i].ID || o.Verdict != plan.Valid ||
			o.Ledger.Lost+o.Ledger.Duplicated+o.Ledger.Unknown != 0 || o.Ledger.Received != o.Ledger.Sent {
			t.Errorf("outcome %d is of %s: %s %v, %+v", i, o.Task, o.Verdict, o.Reasons, o.Ledger)
		}
	}
	if sent := all[1].Ledger.Sent; sent != 1000 { // 500 per second for 2 s
		t.Errorf("the second task sent %d, want 1000", sent)
	}
	over := slices.IndexFunc(w.events, func(p controller.Progress) bool { return p.Kind == wire.TakenOver })
	if over < 0 {
		t.Fatalf("no takeover: %s", w.kinds())
	}
	if e := w.events[over]; e.Task.ID != run.Tasks()[x.task-1].ID ||
		!strings.HasSuffix(e.Detail, " has taken over: the task in flight is repeated") {
		t.Errorf("the takeover has the detail %q for task %q, want that task %d is repeated", e.Detail, e.Task.ID, x.task)
	}
	for i, o := range all {
		if repeated := i == x.task-1; len(o.FailedAttempts) > 0 != repeated || repeated &&
			(len(o.FailedAttempts) != 1 || o.FailedAttempts[0].Kind != plan.FailedInterrupted) {
			t.Errorf("outcome %d names the attempts %+v before it", i, o.FailedAttempts)
		}
	}
	cleared(t, l)
}

func arrival(step wire.Step) func(*nats.Msg) bool {
	return func(m *nats.Msg) bool {
		return strings.Contains(m.Subject, ".arrive.") && strings.Contains(string(m.Data), `"step":"`+string(step)+`"`)
	}
}

// cleared waits until only the record of an ended run is left.
func cleared(t *testing.T, l *lab) {
	t.Helper()
	js := l.jetstream()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		kept, err := wiretest.Stored(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		left := ""
		for subject := range kept {
			if strings.Contains(subject, ".queue.") {
				left = subject
			}
		}
		folder, err := l.client.Runs(t.Context())
		if err != nil || len(folder) != 1 {
			t.Fatalf("the runs are %+v, %v", folder, err)
		}
		if r := folder[0]; left == "" && r.State == string(wire.EndDone) && r.Done == r.Tasks && !r.Ended.IsZero() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there after the run has ended, whose state is %+v", left, folder[0])
		}
	}
}

func TestTheLeaderCopiesEveryRun(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		l.stop()
		l.wg.Wait()
		l.config.Copies = t.TempDir()
		l.control()
		run := aRun(nil)
		if w := l.run(run, nil, nil); w.end.Ran != 1 {
			t.Fatalf("%+v", w.end)
		}
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			folder, err := l.client.Runs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(folder) == 1 && folder[0].Copied {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the run is not marked as copied: %+v", folder)
			}
		}
		dir, err := runs.Open(l.config.Copies, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := dir.Outcomes(); err != nil || len(all) != 1 {
			t.Errorf("the copy has %d outcomes, %v", len(all), err)
		}
		for _, name := range []string{"tables.txt", "report.html"} {
			if text, err := os.ReadFile(filepath.Join(dir.Dir(), name)); err != nil || len(text) == 0 {
				t.Errorf("the run is marked as copied without %s: %v", name, err)
			}
		}
		asked := plan.HistoryQuery{Cells: []string{run.Cells[0].ID[:6]}, Value: "sent"}
		a, err := l.client.History(t.Context(), asked)
		if err != nil || a.Runs != 1 || len(a.Cells) != 1 || len(a.Cells[0].Points) != 1 ||
			a.Cells[0].Points[0].Run != run.ID || a.Cells[0].Points[0].Value.Number == 0 {
			t.Errorf("the controller's history answers %+v, %v", a, err)
		}
		if _, err := l.client.History(t.Context(), plan.HistoryQuery{Cells: []string{"zzz"}}); err == nil ||
			!strings.Contains(err.Error(), `no cell id begins with "zzz"`) {
			t.Errorf("for a cell that is not there it answers %v", err)
		}
	})
}

// messages returns the future messages of a subject.
func messages(t *testing.T, nc *nats.Conn, subject string) <-chan *nats.Msg {
	t.Helper()
	all := make(chan *nats.Msg, 100_000)
	if _, err := nc.ChanSubscribe(subject, all); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushWithContext(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return all
}

// next waits for a matching message.
func next(t *testing.T, all <-chan *nats.Msg, fits func(*nats.Msg) bool) *nats.Msg {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case m := <-all:
			if fits(m) {
				return m
			}
		case <-late:
			t.Fatal("no message came that fits")
		}
	}
}

// All agents of a run are lost, and then its controller crashes. The run still waits for other agents, and its state
// reports it until they exist.
func TestARunWithoutAgentsIsTakenOver(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLab(t, "a1", "a2", "a3", "a4")
		run := aRun(nil, long)
		run.Grace = plan.Duration(2 * time.Minute)
		l.submit(run)
		epoch := l.inFlight(run.ID, run.Tasks()[1].ID, 0)
		for _, a := range []string{"a1", "a2", "a3", "a4"} {
			l.kill(a)
		}
		l.inFlight(run.ID, "", epoch-1)
		short := func(s wire.RunState) bool {
			return running(s) && s.Waiting == "too few agents: 0 available, 4 required"
		}
		epoch = l.state(run.ID, short).Epoch
		time.Sleep(10 * time.Second)
		l.crash()
		l.control()
		time.Sleep(20 * time.Second)
		l.state(run.ID, func(s wire.RunState) bool { return short(s) && s.Epoch > epoch })
		for _, a := range []string{"b1", "b2", "b3", "b4"} {
			l.start(a)
		}
		l.state(run.ID, func(s wire.RunState) bool { return s.InFlight == run.Tasks()[1].ID && s.Waiting == "" })
		if s := l.ended(run.ID); s.State != string(wire.EndDone) || s.Done != 2 {
			t.Errorf("the run ended as %+v", s)
		}
	})
}

// A controller that takes over without copies fills its history from the control plane.
func TestTheFirstTakeoverFillsTheHistory(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLabOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
		l.run(aRun(nil), nil, nil)
		l.leave()
		l.config.Copies = filepath.Join(t.TempDir(), "runs")
		l.config.Log = slog.New(failing{l.log().Handler(), "cannot update the history; rebuild it with ctl history reindex",
			func() { t.Error("the history was not filled") }})
		l.control()
		until(t, time.Minute, func() bool {
			a, err := l.client.History(t.Context(), plan.HistoryQuery{Value: "sent"})
			return err == nil && a.Runs == 1
		}, "the history has no run")
	})
}
