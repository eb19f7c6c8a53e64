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
		all = append(all, fault{name: "controller killed beside its control plane/" + phase,
			do: func(r *row) { r.controllerKilled(phase, 1) }})
	}
	return append(all,
		fault{name: "leader killed, a standby takes over", short: true, do: leaderKilled},
		fault{name: "controller killed/when a run was submitted", do: controllerKilledEarly},
		fault{name: "leader stopped, a standby takes over", do: leaderStopped},
		fault{name: "controller killed twice in one task", do: quarantined},
		fault{name: "leader asked to leave, a standby goes on", do: leaderAsked},
		fault{name: "leader and its NATS server of three killed", short: true, do: leaderAndServerKilled},
		fault{name: "lease lapsed", short: true, do: leaseLapsed},
		fault{name: "controller killed in a search", short: true,
			do: func(r *row) { r.controllerRestarted(syscall.SIGKILL) }},
		fault{name: "controller asked to leave in a search",
			do: func(r *row) { r.controllerRestarted(syscall.SIGTERM) }},
	)
}

// controllerKilled kills the only controller and starts it again. If nodes is 0, the control plane is embedded in it.
func (r *row) controllerKilled(phase string, nodes int) {
	f := r.fleet(shape{plane: nodes, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	f.reach(r, 2, phase)
	away := r.between(0, 8*time.Second).Round(100 * time.Millisecond)
	r.did("kill -9 of the controller in %s, restarted after %v", phase, away)
	at := f.controllers["controller"].Kill()
	r.pass(away)
	f.startController("controller")
	if nodes == 0 { // without a control plane, agents receive no start time and no releases
		f.harmed(at, 1)
	}
	a := f.ends(0, 3)
	a.takenOver(at)
	r.line.wentOn = a.wentOn(at)
	a.explained(f.harms)
}

// leaderKilled kills the leader while a standby is running.
func leaderKilled(r *row) {
	f := r.fleet(shape{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.reach(r, 2, phase)
	r.did("kill -9 of the leader in %s, with a standby", phase)
	at := f.controllers["c1"].Kill()
	a := f.ends(0, 3)
	r.line.noticed, r.line.wentOn = a.takenOver(at), a.wentOn(at)
	e, _ := a.first(wire.TakenOver, at)
	a.attempted(e.Task)
	a.explained(nil)
}

// leaderAndServerKilled kills the leader and its node of the control plane. Both stay down.
func leaderAndServerKilled(r *row) {
	through := map[string]string{}
	f := r.fleet(shape{plane: 3, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}, through: through,
		before: func(f *fleet) {
			through["c1"] = f.plane[0].url()
		}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.reach(r, 2, phase)
	r.did("kill -9 of the leader and of its node of three in %s, with a standby", phase)
	at := f.controllers["c1"].Kill()
	f.plane[0].Kill()
	a := f.ends(0)
	r.line.noticed, r.line.wentOn = a.takenOver(at), a.wentOn(at)
	e, _ := a.first(wire.TakenOver, at)
	f.read(e.Detail)
	a.attempted(e.Task)
	a.explained(nil)
}

// leaseLapsed stops the leader for longer than the lease is valid, and for less than a standby waits before a takeover.
// It continues to lead.
func leaseLapsed(r *row) {
	f := r.fleet(shape{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.reach(r, 2, phase)
	renewed := func(m *natsgo.Msg) bool { return m.Subject == leaseSubject }
	f.find(f.mark(), "a renewal of the lease", stepLimit, renewed)
	at := time.Now()
	f.controllers["c1"].Signal(syscall.SIGSTOP)
	r.pass(lease.LapsesAfter + 250*time.Millisecond)
	from := f.mark()
	f.controllers["c1"].Signal(syscall.SIGCONT)
	f.find(from, "a renewal of the lease", stepLimit, renewed)
	lapse := time.Since(at)
	r.did("SIGSTOP of the leader in %s, %v from one renewal of the lease to the next", phase,
		lapse.Round(100*time.Millisecond))
	a := f.ends(0)
	r.line.wentOn = a.wentOn(at)
	a.explained(nil)
	e, taken := a.first(wire.TakenOver, at)
	switch {
	case !taken:
		a.attempted()
	case lapse < lease.TakenAfter-time.Second: // the first renewal may have been received late
		f.t.Errorf("after %v without a renewal: %s", lapse, e.Detail)
	default:
		f.t.Logf("this machine stopped the leader for longer than asked for: %s", e.Detail)
	}
}

// leaderStopped stops the leader until a standby has taken over, and then continues it. It must not write any more.
func leaderStopped(r *row) {
	f := r.fleet(shape{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(3, ""))
	phase := r.oneOf(phases...)
	f.reach(r, 2, phase)
	span := r.between(10*time.Second, 20*time.Second).Round(100 * time.Millisecond)
	r.did("SIGSTOP of the leader for %v in %s, with a standby", span, phase)
	at := time.Now()
	f.controllers["c1"].Signal(syscall.SIGSTOP)
	r.pass(span)
	f.controllers["c1"].Signal(syscall.SIGCONT)
	a := f.ends(0, 3)
	r.line.noticed, r.line.wentOn = a.takenOver(at), a.wentOn(at)
	a.explained(nil)
}

// quarantined kills the controller twice with the same task in flight. The run ends and keeps its outcomes, and ctl run
// --resume executes the rest.
func quarantined(r *row) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(inReady, inWarmup, inMeasure)
	b := f.reach(r, 2, phase)
	r.did("kill -9 of the controller in %s, restarted, and again in the same task", phase)
	for n := range 2 {
		from := f.mark()
		f.controllers["controller"].Kill()
		f.startController("controller")
		if n == 0 {
			again := f.event(from, wire.TaskStarted, runLimit)
			if again.Task != b.Task {
				f.t.Errorf("task %s is begun after the controller was killed in task %s", again.Task, b.Task)
			}
			f.load(again, warmup)
		}
	}
	if code := f.ctl.ExitCode(); code != 1 || !strings.Contains(f.ctl.Tail(3000), "(task "+b.Task+") in flight") {
		f.t.Errorf("ctl exited with %d, last output:\n%s", code, f.ctl.Tail(3000))
	}
	if out, err := f.ctlOutput("runs", "list", "--server", f.url); err != nil ||
		!strings.Contains(out, string(wire.EndQuarantined)) {
		f.t.Errorf("ctl runs list: %v, and it said:\n%s", err, out)
	}
	f.resume()
	f.ends(0)
}

// leaderAsked ends the leader with SIGTERM while a standby is running. It waits for the task in flight, and nothing is
// repeated.
func leaderAsked(r *row) {
	f := r.fleet(shape{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.reach(r, 2, phase)
	r.did("SIGTERM to the leader in %s, with a standby", phase)
	at := time.Now()
	f.controllers["c1"].Signal(syscall.SIGTERM)
	f.controllers["c1"].Exits(0)
	a := f.ends(0)
	r.line.noticed, r.line.wentOn = a.takenOver(at), a.wentOn(at)
	if e, interrupted := a.first(wire.TaskInterrupted, at); interrupted {
		f.t.Errorf("task %s was interrupted: %s", e.Task, e.Detail)
	}
	a.explained(nil)
}

// controllerRestarted kills or terminates the only controller during a step of a search, and starts it again. Earlier
// steps are not repeated. After SIGTERM, the current step is not repeated either.
func (r *row) controllerRestarted(s syscall.Signal) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	search := strings.NewReplacer(`["confirm-window", "confirm-each"]`, `["confirm-window"]`, "rate: 300, ", "",
		`"5ms"`, `"1ms"`,
		"\tmeasure:",
		fmt.Sprintf("\tsearch: {while: \"lost == 0\", from: 50, max: 200, step: %q, repeats: 2}\n\tmeasure:", measure))
	f.submit(search.Replace(f.matrix(1, "")))
	b := f.task(1)
	for range 2 {
		b = f.event(b.place, wire.TaskStarted, runLimit)
	}
	phase := r.oneOf(phases...)
	f.within(r, b, phase)
	r.did("%v of the controller in %s of the third step of a search, restarted", s, phase)
	at := time.Now()
	f.controllers["controller"].Signal(s)
	f.controllers["controller"].ExitCode()
	f.startController("controller")
	a := f.ends(0)
	a.takenOver(at)
	r.line.wentOn = a.wentOn(at)
	cut, _ := a.first(wire.TakenOver, at)
	if s != syscall.SIGKILL && cut.Task != "" {
		f.t.Errorf("the controller left in a step: %s", cut.Detail)
	}
	f.read(cut.Detail)
	var steps []string // without the one that was interrupted
	for _, e := range a.events {
		if e.Kind == wire.TaskStarted && e.Attempt != cut.Attempt {
			steps = append(steps, strings.Split(e.Detail, ":")[0])
		}
	}
	o := a.outcomes[b.Task]
	if o.Search == nil || !o.Search.Sure || o.Search.Capacity != 200 {
		f.t.Fatalf("the search found %+v", o.Search)
	}
	var want []string // five, or more if a step was repeated on a busy machine
	for i := range max(5, len(o.Search.Steps)) {
		want = append(want, fmt.Sprint("step ", i+1))
	}
	if !slices.Equal(steps, want) {
		f.t.Errorf("begun were %q, want each of %q once", steps, want)
	}
	a.explained(nil)
}

// takenOver returns the time until another controller took over the run.
func (a *account) takenOver(at time.Time) time.Duration {
	a.t.Helper()
	e, ok := a.first(wire.TakenOver, at)
	if !ok {
		a.t.Error("no other controller took up the run")
	}
	return e.At.Sub(at)
}

// controllerKilledEarly kills the controller just after a run was submitted.
func controllerKilledEarly(r *row) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	f.launch(f.matrix(1, ""))
	f.find(0, "a submission", stepLimit, func(m *natsgo.Msg) bool { return kind(m.Subject) == "queue.submit" })
	r.pass(r.between(0, 300*time.Millisecond))
	away := r.between(0, 8*time.Second).Round(100 * time.Millisecond)
	r.did("kill -9 of the controller when a run was submitted, restarted after %v", away)
	at := f.controllers["controller"].Kill()
	r.pass(away)
	f.startController("controller")
	f.begins()
	a := f.ends(0)
	r.line.wentOn = a.wentOn(at)
	a.explained(nil)
}
