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
			do: func(r *row) { r.planeAway("kill -9", inMeasure, r.between(0, 8*time.Second)) }},
		{name: "control plane killed/anywhere", do: func(r *row) {
			r.planeAway("kill -9", r.oneOf(phases...),
				r.between(0, 8*time.Second))
		}},
		{name: "control plane away for long/in a task", short: true,
			do: func(r *row) { r.planeAway("kill -9", r.oneOf(phases...), longAway()) }},
		{name: "control plane away for long/after a task", short: true,
			do: func(r *row) { r.planeAway("SIGSTOP", inSettle, longAway()) }},
		{name: "control plane full of snapshots", short: true, do: planeFull},
		{name: "control plane killed/one of three", do: oneOfThree},
	}
}

// longAway is longer than the lease and than a standby's wait before a takeover, and shorter than agents wait for a
// leader.
func longAway() time.Duration {
	if long() {
		return time.Minute
	}
	return 15 * time.Second
}

// planeAway kills or stops the NATS server of the control plane, and starts or continues it. The leader continues to
// lead although a standby is running, and nothing is repeated.
func (r *row) planeAway(how, phase string, away time.Duration) {
	f := r.fleet(shape{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(strings.Replace(f.matrix(2, ""), "repeat:", "settle: \"1s\"\nrepeat:", 1))
	f.reach(r, 2, phase)
	r.did("%s of the control plane's NATS in %s, back after %v", how, phase, away.Round(100*time.Millisecond))
	if how == "kill -9" {
		f.plane[0].Kill()
		r.pass(away)
		f.plane[0].again()
	} else {
		f.plane[0].Signal(syscall.SIGSTOP)
		r.pass(away)
		f.plane[0].Signal(syscall.SIGCONT)
	}
	back := time.Now()
	a := f.ends(0)
	r.line.wentOn = a.wentOn(back)
	if long() && away == longAway() { // ctl has checked for a leader twice
		f.read("a controller leads again; the run continues")
	}
	a.attempted()
	a.explained(nil)
}

// planeFull fills the stream of the run's snapshots up to its limit, between the last snapshot of a task and its
// outcome. That outcome is stored. The run ends in the next task, with the limit as the reason, and keeps its outcomes.
// It is resumed with a larger limit.
func planeFull(r *row) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}, flags: []string{"--record-limit", "128MiB"}})
	f.submit(f.matrix(3, ""))
	var b begun
	for n := 2; ; n++ {
		b = f.task(n)
		f.release(b, wire.StepTeardown) // all snapshots of the attempt are stored
		f.controllers["controller"].Signal(syscall.SIGSTOP)
		r.pass(200 * time.Millisecond) // its messages arrive
		if !slices.ContainsFunc(f.stored(), func(s stored) bool { return s.kind == "outcome" && s.task == b.Task }) {
			break
		}
		f.controllers["controller"].Signal(syscall.SIGCONT) // it was faster
		if n == 5 {
			f.t.Fatal("each outcome was stored before the controller was stopped")
		}
	}
	r.did("stream of snapshots filled before outcome %d, continued with a larger limit", b.N)
	f.fill()
	f.controllers["controller"].Signal(syscall.SIGCONT)
	f.ctl.Exits(1)
	f.read("the snapshots of a run may use 64.0 MiB; start the controller with a larger --record-limit, and continue the run with " +
		"ctl run --resume")
	if out, err := f.ctlOutput("runs", "list", "--server", f.url); err != nil ||
		!strings.Contains(out, string(wire.EndFailed)) {
		f.t.Errorf("ctl runs list: %v, and it said:\n%s", err, out)
	}
	kept := &account{t: f.t, outcomes: map[string]plan.Outcome{}, ended: map[string]uint64{}, record: f.stored()}
	kept.read()
	cut, ok := kept.first(wire.TaskInterrupted, b.At)
	if _, after := kept.outcomes[b.Task]; !after {
		f.t.Error("lost: the outcome of the task whose snapshots filled the stream")
	}
	if _, first := kept.outcomes[cut.Task]; !ok || first || len(kept.outcomes) != cut.N-1 {
		f.t.Errorf("interrupted was %+v, and %d tasks have outcomes: want all before it", cut, len(kept.outcomes))
	}
	f.controllers["controller"].Signal(syscall.SIGTERM)
	f.controllers["controller"].ExitCode()
	larger := f.commands["controller"]
	larger.Argv = append(larger.Argv, "--record-limit", "512MiB")
	f.commands["controller"] = larger
	f.startController("controller")
	f.resume()
	a := f.ends(0)
	a.attempted(cut.Task)
	a.explained(nil)
}

// fill stores an earlier snapshot repeatedly, padded with spaces, until the server rejects even the smallest one.
func (f *fleet) fill() {
	f.t.Helper()
	m, _ := f.find(0, "a stored snapshot", stepLimit,
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
		var refused *jetstream.APIError
		switch {
		case err == nil:
		case !errors.As(err, &refused) || !strings.Contains(refused.Description, "maximum bytes exceeded"):
			f.t.Fatalf("fill the stream of snapshots: %v", err)
		case space == 0:
			return
		default:
			space /= 2
		}
	}
}

// oneOfThree kills the node that leads the stream of events.
func oneOfThree(r *row) {
	f := r.fleet(shape{plane: 3, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.reach(r, 2, phase)
	name := f.recordLeader()
	away := r.between(2*time.Second, 8*time.Second).Round(100 * time.Millisecond)
	r.did("kill -9 of the leader of the record among three nodes in %s, restarted after %v", phase, away)
	var victim *nats
	for _, n := range f.plane {
		if n.Name == name {
			victim = n
		}
	}
	if victim == nil {
		r.t.Fatalf("no node is named %q", name)
	}
	at := victim.Kill()
	r.pass(away)
	victim.again()
	f.harmed(at, 1)
	a := f.ends(0, 3)
	r.line.wentOn = a.wentOn(at)
	a.explained(f.harms)
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
		f.t.Fatalf("the record has %d replicas, want 3", info.Config.Replicas)
	}
	return info.Cluster.Leader
}
