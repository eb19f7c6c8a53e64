package chaos

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/lease"
)

func controllerFaults() (all []fault) {
	for _, phase := range phases {
		all = append(all, fault{name: "controller killed/" + phase, do: func(r *row) { r.controllerKilled(phase, 0) }})
		all = append(all, fault{name: "controller killed, separate control plane/" + phase,
			do: func(r *row) { r.controllerKilled(phase, 1) }})
	}
	return append(all,
		fault{name: "leader killed, a standby takes over", short: true, do: leaderKilled},
		fault{name: "controller killed/at submission", do: controllerKilledEarly},
		fault{name: "leader stopped, a standby takes over", do: leaderStopped},
		fault{name: "controller killed twice in one task", do: controllerKilledTwice},
		fault{name: "leader terminated, a standby takes over", do: leaderTerminated},
		fault{name: "leader and its NATS server of three killed", short: true, do: leaderAndServerKilled},
		fault{name: "lease lapsed", short: true, do: leaseLapsed},
		fault{name: "controller killed in a search", short: true,
			do: func(r *row) { r.controllerRestarted(syscall.SIGKILL) }},
		fault{name: "controller terminated in a search",
			do: func(r *row) { r.controllerRestarted(syscall.SIGTERM) }},
	)
}

// controllerKilled kills the only controller and starts it again. If nodes is 0, the control plane is embedded in it.
func (r *row) controllerKilled(phase string, nodes int) {
	f := r.startFleet(fleetSpec{plane: nodes, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	f.awaitTaskPhase(r, 2, phase)
	downtime := r.between(0, 8*time.Second).Round(100 * time.Millisecond)
	r.describe("kill -9 of the controller in %s, restarted after %v", phase, downtime)
	at := f.controllers["controller"].Kill()
	r.wait(downtime)
	f.startController("controller")
	if nodes == 0 { // without a control plane, agents receive no start time and no releases
		f.addFaultPeriod(at, 1)
	}
	check := f.awaitEnd(0, 3)
	check.timeToTakeover(at)
	r.line.resumed = check.timeToNextStart(at)
	check.checkInvalidTasks(f.faultPeriods)
}

// leaderKilled kills the leader while a standby is running.
func leaderKilled(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.awaitTaskPhase(r, 2, phase)
	r.describe("kill -9 of the leader in %s, with a standby", phase)
	at := f.controllers["c1"].Kill()
	check := f.awaitEnd(0, 3)
	r.line.detected, r.line.resumed = check.timeToTakeover(at), check.timeToNextStart(at)
	e, _ := check.firstEvent(wire.TakenOver, at)
	check.checkStarts(e.Task)
	check.checkInvalidTasks(nil)
}

// leaderAndServerKilled kills the leader and its node of the control plane. Both stay down.
func leaderAndServerKilled(r *row) {
	serverURLs := map[string]string{}
	f := r.startFleet(fleetSpec{plane: 3, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"},
		serverURLs: serverURLs,
		before: func(f *fleet) {
			serverURLs["c1"] = f.plane[0].url()
		}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.awaitTaskPhase(r, 2, phase)
	r.describe("kill -9 of the leader and of its node of three in %s, with a standby", phase)
	at := f.controllers["c1"].Kill()
	f.plane[0].Kill()
	check := f.awaitEnd(0)
	r.line.detected, r.line.resumed = check.timeToTakeover(at), check.timeToNextStart(at)
	e, _ := check.firstEvent(wire.TakenOver, at)
	f.checkOutput(e.Detail)
	check.checkStarts(e.Task)
	check.checkInvalidTasks(nil)
}

// leaseLapsed stops the leader for longer than the lease is valid, and for less than a standby waits before a takeover.
// It continues to lead.
func leaseLapsed(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.awaitTaskPhase(r, 2, phase)
	renewed := func(m *natsgo.Msg) bool { return m.Subject == leaseSubject }
	f.awaitMessage(f.position(), "a renewal of the lease", stepLimit, renewed)
	at := time.Now()
	f.controllers["c1"].Signal(syscall.SIGSTOP)
	r.wait(lease.LapsesAfter + 250*time.Millisecond)
	from := f.position()
	f.controllers["c1"].Signal(syscall.SIGCONT)
	f.awaitMessage(from, "a renewal of the lease", stepLimit, renewed)
	lapse := time.Since(at)
	r.describe("SIGSTOP of the leader in %s, %v from one renewal of the lease to the next", phase,
		lapse.Round(100*time.Millisecond))
	check := f.awaitEnd(0)
	r.line.resumed = check.timeToNextStart(at)
	check.checkInvalidTasks(nil)
	e, taken := check.firstEvent(wire.TakenOver, at)
	switch {
	case !taken:
		check.checkStarts()
	case lapse < lease.TakenAfter-time.Second: // the first renewal may have been received late
		f.t.Errorf("a standby took over after %v without a renewal, want none before %v: %s", lapse, lease.TakenAfter,
			e.Detail)
	default:
		f.t.Logf("the leader was stopped for %v, longer than intended: %s", lapse, e.Detail)
	}
}

// leaderStopped stops the leader until a standby has taken over, and then continues it. It must not write any more.
func leaderStopped(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(3, ""))
	phase := r.oneOf(phases...)
	f.awaitTaskPhase(r, 2, phase)
	duration := r.between(10*time.Second, 20*time.Second).Round(100 * time.Millisecond)
	r.describe("SIGSTOP of the leader for %v in %s, with a standby", duration, phase)
	at := time.Now()
	f.controllers["c1"].Signal(syscall.SIGSTOP)
	r.wait(duration)
	f.controllers["c1"].Signal(syscall.SIGCONT)
	check := f.awaitEnd(0, 3)
	r.line.detected, r.line.resumed = check.timeToTakeover(at), check.timeToNextStart(at)
	check.checkInvalidTasks(nil)
}

// controllerKilledTwice kills the controller twice with the same task in flight. The run ends and keeps its outcomes,
// and ctl run --resume executes the rest.
func controllerKilledTwice(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	// The second kill must be in the same task, also if this process gets the CPU late.
	f.submit(f.replaced(f.matrix(2, ""), fmt.Sprintf("measure: %q", measure), `measure: "8s"`))
	phase := r.oneOf(inReady, inWarmup, inMeasure)
	b := f.awaitTaskPhase(r, 2, phase)
	r.describe("kill -9 of the controller in %s, restarted, and again in the same task", phase)
	for n := range 2 {
		from := f.position()
		f.controllers["controller"].Kill()
		f.startController("controller")
		if n == 0 {
			again := f.awaitEvent(from, wire.TaskStarted, runLimit)
			if again.Task != b.Task {
				f.t.Errorf("first task after the restart: got %s, want %s", again.Task, b.Task)
			}
			f.awaitLoad(again, warmup)
		}
	}
	if code := f.ctl.ExitCode(); code != 1 || !strings.Contains(f.ctl.Tail(3000), "(task "+b.Task+") in flight") {
		f.t.Errorf("ctl: got exit code %d, want 1 and task %s in flight; last output:\n%s", code, b.Task,
			f.ctl.Tail(3000))
	}
	if out, err := f.ctlOutput("runs", "list", "--server", f.url); err != nil ||
		!strings.Contains(out, string(wire.EndQuarantined)) {
		f.t.Errorf("ctl runs list: got error %v and no %q in the output:\n%s", err, wire.EndQuarantined, out)
	}
	f.resumeRun()
	f.awaitEnd(0)
}

// leaderTerminated ends the leader with SIGTERM while a standby is running. It waits for the task in flight, and
// nothing is repeated.
func leaderTerminated(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.awaitTaskPhase(r, 2, phase)
	r.describe("SIGTERM to the leader in %s, with a standby", phase)
	at := time.Now()
	f.controllers["c1"].Signal(syscall.SIGTERM)
	f.controllers["c1"].Exits(0)
	check := f.awaitEnd(0)
	r.line.detected, r.line.resumed = check.timeToTakeover(at), check.timeToNextStart(at)
	if e, interrupted := check.firstEvent(wire.TaskInterrupted, at); interrupted {
		f.t.Errorf("task %s was interrupted: %s", e.Task, e.Detail)
	}
	check.checkInvalidTasks(nil)
}

// controllerRestarted kills or terminates the only controller during a step of a search, and starts it again. Earlier
// steps are not repeated. After SIGTERM, the current step is not repeated either.
func (r *row) controllerRestarted(s syscall.Signal) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	search := strings.NewReplacer(`["confirm-window", "confirm-each"]`, `["confirm-window"]`, "rate: 300, ", "",
		`"5ms"`, `"1ms"`,
		"\tmeasure:",
		fmt.Sprintf("\tsearch: {while: \"lost == 0\", from: 50, max: 200, step: %q, repeats: 2}\n\tmeasure:", measure))
	f.submit(search.Replace(f.matrix(1, "")))
	b := f.awaitTask(1)
	for range 2 {
		b = f.awaitEvent(b.next, wire.TaskStarted, runLimit)
	}
	phase := r.oneOf(phases...)
	f.awaitPhase(r, b, phase)
	r.describe("%v of the controller in %s of the third step of a search, restarted", s, phase)
	at := time.Now()
	f.controllers["controller"].Signal(s)
	f.controllers["controller"].ExitCode()
	f.startController("controller")
	check := f.awaitEnd(0)
	check.timeToTakeover(at)
	r.line.resumed = check.timeToNextStart(at)
	takeover, _ := check.firstEvent(wire.TakenOver, at)
	if s != syscall.SIGKILL && takeover.Task != "" {
		f.t.Errorf("the controller exited during a step, want after it: %s", takeover.Detail)
	}
	f.checkOutput(takeover.Detail)
	var steps []string // without the one that was interrupted
	for _, e := range check.events {
		if e.Kind == wire.TaskStarted && e.Attempt != takeover.Attempt {
			steps = append(steps, strings.Split(e.Detail, ":")[0])
		}
	}
	o := check.outcomes[b.Task]
	if o.Search == nil || !o.Search.Sure || o.Search.Capacity != 200 {
		f.t.Fatalf("search: got %+v, want a sure capacity of 200", o.Search)
	}
	var want []string // five, or more if a step was repeated on a busy machine
	for i := range max(5, len(o.Search.Steps)) {
		want = append(want, fmt.Sprint("step ", i+1))
	}
	if !slices.Equal(steps, want) {
		f.t.Errorf("started steps: got %q, want each of %q once", steps, want)
	}
	check.checkInvalidTasks(nil)
}

// timeToTakeover returns the time until another controller took over the run.
func (c *recordCheck) timeToTakeover(at time.Time) time.Duration {
	c.t.Helper()
	e, ok := c.firstEvent(wire.TakenOver, at)
	if !ok {
		c.t.Error("the record has no event that a controller took over the run")
	}
	return e.At.Sub(at)
}

// controllerKilledEarly kills the controller just after a run was submitted.
func controllerKilledEarly(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	f.startCtlRun(f.matrix(1, ""))
	f.awaitMessage(0, "a submission", stepLimit, func(m *natsgo.Msg) bool { return kind(m.Subject) == "queue.submit" })
	r.wait(r.between(0, 300*time.Millisecond))
	downtime := r.between(0, 8*time.Second).Round(100 * time.Millisecond)
	r.describe("kill -9 of the controller at submission, restarted after %v", downtime)
	at := f.controllers["controller"].Kill()
	r.wait(downtime)
	f.startController("controller")
	f.awaitRunDir()
	check := f.awaitEnd(0)
	r.line.resumed = check.timeToNextStart(at)
	check.checkInvalidTasks(nil)
}
