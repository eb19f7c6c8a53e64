package controller_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lockstep/internal/controller"
	"lockstep/internal/plan"
	"lockstep/internal/runs"
	"lockstep/internal/wire"
	"lockstep/pkg/drivers"
	"lockstep/test/wiretest"

	"github.com/nats-io/nats.go"
)

// deliberate is the loopback driver, each of whose steps takes a second: a test in virtual time finds a task within any
// of them.
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

// TestAControllerKilledAnywhereIsReplaced kills the controller a moment after an agent has arrived somewhere in the
// second task: no task is lost or run twice, and the record names what became of the one in flight.
func TestAControllerKilledAnywhereIsReplaced(t *testing.T) {
	t.Parallel()
	for _, x := range []killing{
		{"open", arrival(wire.StepOpen), 2, "repeated"}, // in the setup
		{"measure", func(e wire.Entry) bool { return e.Snapshot != nil && e.Snapshot.LastSend > 0 }, 2, "concluded"},
		{"stopped", arrival(wire.StepStart), 2, "concluded"},
		{"finish", arrival(wire.StepFinish), 2, "concluded"},     // in the teardown
		{"teardown", arrival(wire.StepTeardown), 2, "concluded"}, // while sessions are closed
		{"done", arrival(wire.StepDone), 3, "repeated"},          // it was over by then, and the third has begun
	} {
		t.Run(x.name, func(t *testing.T) { wiretest.InVirtualTime(t, x.replaced) })
	}
}

// killing is where a controller is killed.
type killing struct {
	name string
	when func(wire.Entry) bool // in the second task
	task int                   // in flight
	want string                // of that
}

// replaced kills the controller there.
func (x killing) replaced(t *testing.T) {
	l := newLab(t, "a1", "a2", "a3", "a4")
	slow := func(c *plan.Cell) { c.Broker.Driver = "deliberate" }
	run := aRun(slow, func(c *plan.Cell) {
		slow(c)
		c.Workload.Publishers.Count, c.Workload.Publishers.Rate, c.Workload.Measure = 0, 500, plan.Duration(2*time.Second)
	}, slow)
	second := run.Tasks()[1].ID
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var once sync.Once
	go func() {
		_ = l.conn.Watch(ctx, run.ID, 0, func(e wire.Entry) {
			if e.Ref.Task == second && x.when(e) {
				once.Do(func() {
					time.Sleep(deliberation / 10)
					l.crash()
					l.control()
				})
			}
		})
	}()
	w := l.run(run, nil, nil)
	all := w.outcomes()
	if w.end.Reason != wire.EndDone || w.end.Ran != 3 || w.end.Failed != 0 || len(all) != 3 {
		t.Fatalf("%d outcomes, %+v; the follower saw %s", len(all), w.end, w.kinds())
	}
	for i, o := range all {
		if o.Task != run.Tasks()[i].ID || o.Verdict != plan.Valid || o.Ledger.Lost+o.Ledger.Duplicated+o.Ledger.Unknown != 0 || o.Ledger.Received != o.Ledger.Sent {
			t.Errorf("outcome %d is of %s: %s %v, %+v", i, o.Task, o.Verdict, o.Reasons, o.Ledger)
		}
	}
	if sent := all[1].Ledger.Sent; sent != 1000 { // 500 a second for 2 s
		t.Errorf("the second task sent %d, want 1000", sent)
	}
	over := slices.IndexFunc(w.events, func(p controller.Progress) bool { return p.Kind == controller.TakenOver })
	if over < 0 {
		t.Fatalf("nothing says that another controller took over: %s", w.kinds())
	}
	if e := w.events[over]; e.Task.ID != run.Tasks()[x.task-1].ID || !strings.Contains(e.Detail, x.want) {
		t.Errorf("the record says %q of task %q, want %q of task %d", e.Detail, e.Task.ID, x.want, x.task)
	}
	for i, o := range all {
		told := slices.ContainsFunc(o.Warnings, func(s string) bool { return strings.Contains(s, "leads the run on") })
		if told != (x.want == "concluded" && i == x.task-1) {
			t.Errorf("the warnings of outcome %d are %q", i, o.Warnings)
		}
	}
	cleared(t, l, x.want == "concluded")
}

func arrival(step wire.Step) func(wire.Entry) bool {
	return func(e wire.Entry) bool { return e.Arrival != nil && e.Arrival.Step == step }
}

// cleared waits until nothing is left of a run that has ended but its record. Releases of a try that not every agent had begun are kept for those that
// come late.
func cleared(t *testing.T, l *lab, releases bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		kept, err := l.conn.Stored(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		left := ""
		for subject := range kept {
			if strings.Contains(subject, ".task.assign.") || strings.Contains(subject, ".task.") && releases || strings.Contains(subject, ".queue.") {
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
				t.Fatalf("nothing says that the run is copied: %+v", folder)
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
				t.Errorf("the copy is without %s when it is said to be there: %v", name, err)
			}
		}
		asked := plan.HistoryQuery{Cells: []string{run.Cells[0].ID[:6]}, Value: "sent"}
		a, err := l.client.History(t.Context(), asked)
		if err != nil || a.Runs != 1 || len(a.Cells) != 1 || len(a.Cells[0].Points) != 1 || a.Cells[0].Points[0].Run != run.ID || a.Cells[0].Points[0].Value.Number == 0 {
			t.Errorf("the controller's history answers %+v, %v", a, err)
		}
		if _, err := l.client.History(t.Context(), plan.HistoryQuery{Cells: []string{"zzz"}}); err == nil || !strings.Contains(err.Error(), `no cell's id begins with "zzz"`) {
			t.Errorf("for a cell that is not there it answers %v", err)
		}
	})
}

// TestWhatAgentsRefusedIsSaidAgain: a former leader's last word is stored when agents have heard of the next one already, who refuse it. The next one says it
// again, under its own epoch.
func TestWhatAgentsRefusedIsSaidAgain(t *testing.T) {
	t.Parallel()
	l := newLabOn(t, wire.ServerConfig{Listen: "127.0.0.1:0", Dir: t.TempDir()}, "a1", "a2", "a3", "a4")
	nc := l.foreigner()
	release, beats, record := heard(t, nc, "lockstep.task.release.>"), heard(t, nc, "lockstep.heartbeat.>"), heard(t, nc, "lockstep.record.>")
	run := aRun(nil)
	over := make(chan watched, 1)
	go func() { over <- l.run(run, nil, nil) }()
	start := next(t, release, func(m *nats.Msg) bool { return strings.Contains(string(m.Data), `"step":"start"`) })
	l.crash()
	for range 4 { // the load is over
		next(t, record, func(m *nats.Msg) bool { return strings.Contains(string(m.Data), `"step":"start"`) })
	}
	epoch, err := strconv.ParseUint(start.Header.Get("Lockstep-Epoch"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	call := nats.NewMsg("lockstep.roll")
	call.Header.Set("Lockstep-Epoch", strconv.FormatUint(epoch+1, 10))
	if err := nc.PublishMsg(call); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a1", "a2", "a3", "a4"} {
		next(t, beats, func(m *nats.Msg) bool {
			var h wire.Heartbeat
			return json.Unmarshal(m.Data, &h) == nil && h.Agent == name && h.Epoch == epoch+1
		})
	}
	finish := nats.NewMsg(start.Subject)
	finish.Header, finish.Data = start.Header, []byte(`{"step":"finish"}`)
	finish.Header.Set("Nats-Msg-Id", "of the former leader")
	if _, err := nc.RequestMsgWithContext(within(t, 10*time.Second), finish); err != nil {
		t.Fatal(err)
	}
	l.control()
	w := <-over
	all := w.outcomes()
	if w.end.Reason != wire.EndDone || len(all) != 1 || all[0].Verdict != plan.Valid {
		t.Fatalf("%+v, the run ended %+v; the follower saw %s", all, w.end, w.kinds())
	}
	for _, a := range all[0].Agents {
		if a.Error != "" || a.Lost {
			t.Errorf("agent %s: %s, lost: %v", a.Agent, a.Error, a.Lost)
		}
	}
}

// heard is what comes on a subject from now on.
func heard(t *testing.T, nc *nats.Conn, subject string) <-chan *nats.Msg {
	t.Helper()
	all := make(chan *nats.Msg, 1000)
	if _, err := nc.ChanSubscribe(subject, all); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushWithContext(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return all
}

// next waits for a message that fits.
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
