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

// slowSteps is loopback with steps of one second, so that a test in virtual time can interrupt each step.
type slowSteps struct{ drivers.Driver }

func init() {
	loopback, err := drivers.Lookup("loopback")
	if err != nil {
		panic(err)
	}
	drivers.Register(slowSteps{loopback})
}

const stepDuration = time.Second

func (d slowSteps) Info() drivers.Info {
	info := d.Driver.Info()
	info.Name = "deliberate"
	return info
}

func (d slowSteps) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	time.Sleep(stepDuration)
	s, err := d.Driver.Open(ctx, options, env)
	return slowStepsSession{s}, err
}

type slowStepsSession struct{ drivers.Session }

func (s slowStepsSession) Setup(ctx context.Context, t drivers.Topology) error {
	time.Sleep(stepDuration)
	return s.Session.Setup(ctx, t)
}

func (s slowStepsSession) Teardown(ctx context.Context, t drivers.Topology) error {
	time.Sleep(stepDuration)
	return s.Session.Teardown(ctx, t)
}

func (s slowStepsSession) Close() error {
	time.Sleep(stepDuration)
	return s.Session.Close()
}

// TestTakeoverAtEachStep crashes the controller just after an agent's report in the second task. No
// task is lost, the one in flight is repeated, and both attempts are in the record.
func TestTakeoverAtEachStep(t *testing.T) {
	t.Parallel()
	for _, x := range []crashPoint{
		{"open", func(m *nats.Msg) bool { // during the setup; the contact before the first task has no subject
			return isArrival(wire.StepOpen)(m) && strings.Contains(string(m.Data), `"subject":`)
		}, 2},
		{"measure", func(m *nats.Msg) bool {
			return strings.Contains(m.Subject, ".snapshot.") && strings.Contains(string(m.Data), "lastSend")
		}, 2},
		{"stopped", isArrival(wire.StepStart), 2},
		{"finish", isArrival(wire.StepFinish), 2},     // during the teardown
		{"teardown", isArrival(wire.StepTeardown), 2}, // while sessions are closed
		{"done", isArrival(wire.StepDone), 3},         // the second task was over, and the third one had started
	} {
		t.Run(x.name, func(t *testing.T) { wiretest.InVirtualTime(t, x.check) })
	}
}

// crashPoint is the time of a controller's crash.
type crashPoint struct {
	name    string
	matches func(*nats.Msg) bool // report of an agent in the second task
	task    int                  // in flight
}

// check crashes the controller at that time.
func (x crashPoint) check(t *testing.T) {
	l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
	slow := func(c *plan.Cell) { c.Broker.Driver = "deliberate" }
	run := newRun(slow, func(c *plan.Cell) {
		slow(c)
		c.Workload.Publishers.Count, c.Workload.Publishers.Rate, c.Workload.Measure = 0, 500,
			plan.Duration(2*time.Second)
	}, slow)
	second := run.Tasks()[1].ID
	reports := subscribe(t, l.natsConn(), "lockstep.agent.>")
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		awaitMessage(t, reports, func(m *nats.Msg) bool {
			return strings.Contains(string(m.Data), `"task":"`+second+`"`) &&
				x.matches(m)
		})
		time.Sleep(stepDuration / 10)
		l.crashController()
		l.startController()
	}()
	defer func() { <-killed }()
	w := l.run(run, nil, nil)
	all := w.outcomes()
	if w.end.Reason != wire.EndDone || w.end.Ran != 3 || w.end.Failed != 0 || len(all) != 3 {
		t.Fatalf("got %d outcomes, end %+v, events %s, want 3, done, 0 failed", len(all), w.end, w.kinds())
	}
	for i, o := range all {
		if o.Task != run.Tasks()[i].ID || o.Verdict != plan.Valid ||
			o.Ledger.Lost+o.Ledger.Duplicated+o.Ledger.Unknown != 0 || o.Ledger.Received != o.Ledger.Sent {
			t.Errorf("outcome %d: got task %s, %s %v, %+v, want task %s, valid, all received", i, o.Task, o.Verdict,
				o.Reasons, o.Ledger, run.Tasks()[i].ID)
		}
	}
	if sent := all[1].Ledger.Sent; sent != 1000 { // 500 per second for 2 s
		t.Errorf("sent by the second task: got %d, want 1000", sent)
	}
	over := slices.IndexFunc(w.events, func(p controller.Progress) bool { return p.Kind == wire.TakenOver })
	if over < 0 {
		t.Fatalf("events: got %s, want a takeover", w.kinds())
	}
	if e := w.events[over]; e.Task.ID != run.Tasks()[x.task-1].ID ||
		!strings.HasSuffix(e.Detail, " has taken over: the task in flight is repeated") {
		t.Errorf("takeover: got %q for task %q, want task %d repeated", e.Detail, e.Task.ID, x.task)
	}
	for i, o := range all {
		if repeated := i == x.task-1; len(o.FailedAttempts) > 0 != repeated || repeated &&
			(len(o.FailedAttempts) != 1 || o.FailedAttempts[0].Kind != plan.FailedInterrupted) {
			t.Errorf("failed attempts of outcome %d: got %+v, want one interrupted only if it is repeated (%v)", i,
				o.FailedAttempts, repeated)
		}
	}
	awaitCleanup(t, l)
}

func isArrival(step wire.Step) func(*nats.Msg) bool {
	return func(m *nats.Msg) bool {
		return strings.Contains(m.Subject, ".arrive.") && strings.Contains(string(m.Data), `"step":"`+string(step)+`"`)
	}
}

// awaitCleanup waits until the queue is empty and the only run has ended.
func awaitCleanup(t *testing.T, l *localFleet) {
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
			t.Fatalf("runs: got %+v, error %v, want 1", folder, err)
		}
		if r := folder[0]; left == "" && r.State == string(wire.EndDone) && r.Done == r.Tasks && !r.Ended.IsZero() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("queue after the end of the run: got %q, state %+v, want none, done", left, folder[0])
		}
	}
}

func TestTheLeaderCopiesEveryRun(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		l.cancelController()
		l.controllers.Wait()
		l.config.Copies = t.TempDir()
		l.startController()
		run := newRun(nil)
		if w := l.run(run, nil, nil); w.end.Ran != 1 {
			t.Fatalf("end of the run: got %+v, want 1 task", w.end)
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
				t.Fatalf("the run was not marked as copied: %+v", folder)
			}
		}
		dir, err := runs.Open(l.config.Copies, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := dir.Outcomes(); err != nil || len(all) != 1 {
			t.Errorf("outcomes in the copy: got %d, error %v, want 1", len(all), err)
		}
		for _, name := range []string{"tables.txt", "report.html"} {
			if text, err := os.ReadFile(filepath.Join(dir.Dir(), name)); err != nil || len(text) == 0 {
				t.Errorf("%s in the copy: got %d bytes, error %v, want some", name, len(text), err)
			}
		}
		query := plan.HistoryQuery{Cells: []string{run.Cells[0].ID[:6]}, Value: "sent"}
		a, err := l.client.History(t.Context(), query)
		if err != nil || a.Runs != 1 || len(a.Cells) != 1 || len(a.Cells[0].Points) != 1 ||
			a.Cells[0].Points[0].Run != run.ID || a.Cells[0].Points[0].Value.Number == 0 {
			t.Errorf("history of the controller: got %+v, error %v, want one point of the run", a, err)
		}
		if _, err := l.client.History(t.Context(), plan.HistoryQuery{Cells: []string{"zzz"}}); err == nil ||
			!strings.Contains(err.Error(), `no cell id begins with "zzz"`) {
			t.Errorf("history of an unknown cell: got error %v, want \"no cell id begins with\"", err)
		}
	})
}

// subscribe returns a channel of the future messages of a subject.
func subscribe(t *testing.T, nc *nats.Conn, subject string) <-chan *nats.Msg {
	t.Helper()
	all := make(chan *nats.Msg, 100_000)
	if _, err := nc.ChanSubscribe(subject, all); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushWithContext(withDeadline(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return all
}

// awaitMessage waits for a matching message.
func awaitMessage(t *testing.T, all <-chan *nats.Msg, matches func(*nats.Msg) bool) *nats.Msg {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case m := <-all:
			if matches(m) {
				return m
			}
		case <-timeout:
			t.Fatal("got no matching message within a minute")
		}
	}
}

// All agents of a run are lost, and then its controller crashes. The run continues to wait for other agents. Its state
// contains the reason until they exist.
func TestARunWithoutAgentsIsTakenOver(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleet(t, "a1", "a2", "a3", "a4")
		run := newRun(nil, longCell)
		run.Grace = plan.Duration(2 * time.Minute)
		l.submit(run)
		epoch := l.awaitInFlight(run.ID, run.Tasks()[1].ID, 0)
		for _, a := range []string{"a1", "a2", "a3", "a4"} {
			l.killAgent(a)
		}
		l.awaitInFlight(run.ID, "", epoch-1)
		short := func(s wire.RunState) bool {
			return running(s) && s.Waiting == "too few agents: 0 available, 4 required"
		}
		epoch = l.awaitState(run.ID, short).Epoch
		time.Sleep(10 * time.Second)
		l.crashController()
		l.startController()
		time.Sleep(20 * time.Second)
		l.awaitState(run.ID, func(s wire.RunState) bool { return short(s) && s.Epoch > epoch })
		for _, a := range []string{"b1", "b2", "b3", "b4"} {
			l.startAgent(a)
		}
		l.awaitState(run.ID, func(s wire.RunState) bool { return s.InFlight == run.Tasks()[1].ID && s.Waiting == "" })
		if s := l.awaitEnd(run.ID); s.State != string(wire.EndDone) || s.Done != 2 {
			t.Errorf("state of the ended run: got %+v, want done, 2 tasks", s)
		}
	})
}

// A controller that takes over without copies fills its history from the control plane.
func TestTheFirstTakeoverFillsTheHistory(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		l := newLocalFleetOn(t, wire.ServerConfig{Shared: true}, "a1", "a2", "a3", "a4")
		l.run(newRun(nil), nil, nil)
		l.stopController()
		l.config.Copies = filepath.Join(t.TempDir(), "runs")
		l.config.Log = slog.New(logHook{l.log().Handler(),
			"cannot update the history; rebuild it with ctl history reindex",
			func() { t.Error("the controller could not fill the history") }})
		l.startController()
		waitFor(t, time.Minute, func() bool {
			a, err := l.client.History(t.Context(), plan.HistoryQuery{Value: "sent"})
			return err == nil && a.Runs == 1
		}, "the history contains no run")
	})
}
