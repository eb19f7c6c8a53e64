package chaos

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

func planeFaults() []fault {
	return []fault{
		{name: "control plane killed/" + inMeasure,
			do: func(r *row) { r.controlPlaneStopped("kill -9", inMeasure, r.between(0, 8*time.Second)) }},
		{name: "control plane killed/random phase", do: func(r *row) {
			r.controlPlaneStopped("kill -9", r.oneOf(phases...),
				r.between(0, 8*time.Second))
		}},
		{name: "control plane away for long/in a task", short: true,
			do: func(r *row) { r.controlPlaneStopped("kill -9", r.oneOf(phases...), longDowntime()) }},
		{name: "control plane away for long/after a task", short: true,
			do: func(r *row) { r.controlPlaneStopped("SIGSTOP", inSettle, longDowntime()) }},
		{name: "control plane full of snapshots", short: true, do: snapshotsFull},
		{name: "control plane killed/one of three", do: nodeOfThreeKilled},
	}
}

// longDowntime is longer than the lease and than a standby's wait before a takeover, and shorter than agents wait for a
// leader.
func longDowntime() time.Duration {
	if long() {
		return time.Minute
	}
	return 15 * time.Second
}

// controlPlaneStopped kills or stops the NATS server of the control plane, and starts or continues it. The leader
// continues to lead although a standby is running, and nothing is repeated.
func (r *row) controlPlaneStopped(how, phase string, downtime time.Duration) {
	f := r.startFleet(fleetSpec{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(strings.Replace(f.matrix(2, ""), "repeat:", "settle: \"1s\"\nrepeat:", 1))
	f.awaitTaskPhase(r, 2, phase)
	r.describe("%s of the control plane's NATS server in %s, running again after %v", how, phase,
		downtime.Round(100*time.Millisecond))
	if how == "kill -9" {
		f.plane[0].Kill()
		r.wait(downtime)
		f.plane[0].start()
	} else {
		f.plane[0].Signal(syscall.SIGSTOP)
		r.wait(downtime)
		f.plane[0].Signal(syscall.SIGCONT)
	}
	back := time.Now()
	check := f.awaitEnd(0)
	r.line.resumed = check.timeToNextStart(back)
	if long() && downtime == longDowntime() { // ctl has checked for a leader twice
		f.checkOutput("a controller leads again; the run continues")
	}
	check.checkStarts()
	check.checkInvalidTasks(nil)
}

// snapshotsFull fills the stream of the run's snapshots up to its limit, between the last snapshot of a task and its
// outcome. That outcome is stored. The run ends in the next task, with the limit as the reason, and keeps its outcomes.
// It is resumed with a larger limit.
func snapshotsFull(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}, flags: []string{"--record-limit", "128MiB"}})
	f.submit(f.matrix(3, ""))
	var b startedAttempt
	for n := 2; ; n++ {
		b = f.awaitTask(n)
		f.awaitRelease(b, wire.StepTeardown) // all snapshots of the attempt are stored
		f.controllers["controller"].Signal(syscall.SIGSTOP)
		r.wait(200 * time.Millisecond) // its messages arrive
		if !slices.ContainsFunc(f.readMessages(), func(s message) bool {
			return s.kind == "outcome" &&
				s.task == b.Task
		}) {
			break
		}
		f.controllers["controller"].Signal(syscall.SIGCONT) // it was faster
		if n == 5 {
			f.t.Fatal("the controller stored each outcome before it was stopped")
		}
	}
	r.describe("stream of snapshots filled before outcome %d, run resumed with a larger limit", b.N)
	f.fillSnapshots()
	f.controllers["controller"].Signal(syscall.SIGCONT)
	f.ctl.Exits(1)
	f.checkOutput("the snapshots of a run may use 64.0 MiB; start the controller with a larger --record-limit, and continue the run with " +
		"ctl run --resume")
	if out, err := f.ctlOutput("runs", "list", "--server", f.url); err != nil ||
		!strings.Contains(out, string(wire.EndFailed)) {
		f.t.Errorf("ctl runs list: got error %v and no %q in the output:\n%s", err, wire.EndFailed, out)
	}
	before := &recordCheck{t: f.t, outcomes: map[string]plan.Outcome{}, outcomeSeq: map[string]uint64{},
		messages: f.readMessages()}
	before.parse()
	interrupted, ok := before.firstEvent(wire.TaskInterrupted, b.At)
	if _, ok := before.outcomes[b.Task]; !ok {
		f.t.Error("lost: the outcome of the task during which the stream was filled")
	}
	if _, finished := before.outcomes[interrupted.Task]; !ok || finished || len(before.outcomes) != interrupted.N-1 {
		f.t.Errorf("got %d outcomes, want one for each task before the interrupted one, %+v", len(before.outcomes),
			interrupted)
	}
	f.controllers["controller"].Signal(syscall.SIGTERM)
	f.controllers["controller"].ExitCode()
	larger := f.commands["controller"]
	larger.Argv = append(larger.Argv, "--record-limit", "512MiB")
	f.commands["controller"] = larger
	f.startController("controller")
	f.resumeRun()
	check := f.awaitEnd(0)
	check.checkStarts(interrupted.Task)
	check.checkInvalidTasks(nil)
}

// fillSnapshots stores an earlier snapshot repeatedly, padded with spaces, until the server rejects even the smallest
// one.
func (f *fleet) fillSnapshots() {
	f.t.Helper()
	m, _ := f.awaitMessage(0, "a stored snapshot", stepLimit,
		func(m *natsgo.Msg) bool { return kind(m.Subject) == "snapshots.snapshot" })
	js, err := jetstream.New(f.nc)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*stepLimit)
	defer cancel()
	for space := 900 << 10; ; {
		more := &natsgo.Msg{Subject: m.Subject, Header: natsgo.Header{},
			Data: append(slices.Clone(m.Data), bytes.Repeat([]byte{' '}, space)...)}
		for _, k := range []string{"Lockstep-Epoch", "Lockstep-After", "Lockstep-Protocol", "Lockstep-Format"} {
			if v := m.Header.Get(k); v != "" {
				more.Header.Set(k, v)
			}
		}
		_, err := js.PublishMsg(ctx, more)
		var rejected *jetstream.APIError
		switch {
		case err == nil:
		case !errors.As(err, &rejected) || !strings.Contains(rejected.Description, "maximum bytes exceeded"):
			f.t.Fatalf("fill the stream of snapshots: %v", err)
		case space == 0:
			return
		default:
			space /= 2
		}
	}
}

// nodeOfThreeKilled kills the node that leads the stream of events.
func nodeOfThreeKilled(r *row) {
	f := r.startFleet(fleetSpec{plane: 3, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.awaitTaskPhase(r, 2, phase)
	name := f.recordLeader()
	downtime := r.between(2*time.Second, 8*time.Second).Round(100 * time.Millisecond)
	r.describe("kill -9 of the node of three that leads the stream of events in %s, restarted after %v", phase,
		downtime)
	var target *nats
	for _, n := range f.plane {
		if n.Name == name {
			target = n
		}
	}
	if target == nil {
		r.t.Fatalf("no node is named %q", name)
	}
	at := target.Kill()
	r.wait(downtime)
	target.start()
	f.addFaultPeriod(at, 1)
	check := f.awaitEnd(0, 3)
	r.line.resumed = check.timeToNextStart(at)
	check.checkInvalidTasks(f.faultPeriods)
}

// recordLeader returns the node that leads the stream of the run's events. The stream must have three replicas.
func (f *fleet) recordLeader() string {
	f.t.Helper()
	js, err := jetstream.New(f.nc)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	s, err := js.Stream(ctx, "LOCKSTEP_EVENTS_"+f.run.Plan().ID)
	if err != nil {
		f.t.Fatal(err)
	}
	info := s.CachedInfo()
	if info.Config.Replicas != 3 || info.Cluster == nil {
		f.t.Fatalf("stream of events: got %d replicas, want 3", info.Config.Replicas)
	}
	return info.Cluster.Leader
}
