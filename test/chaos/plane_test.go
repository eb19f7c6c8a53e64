package chaos

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func planeFaults() []fault {
	return []fault{
		{name: "control plane killed/" + inMeasure, do: func(r *row) { r.planeKilled(inMeasure) }},
		{name: "control plane killed/anywhere", do: func(r *row) { r.planeKilled(r.oneOf(phases...)) }},
		{name: "control plane killed/one of three", do: oneOfThree},
	}
}

// planeKilled kills the NATS server of the control plane and starts it again.
func (r *row) planeKilled(phase string) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	f.reach(r, 2, phase)
	away := r.between(0, 8*time.Second).Round(100 * time.Millisecond)
	r.did("kill -9 of the control plane's NATS in %s, restarted after %v", phase, away)
	at := f.plane[0].Kill()
	r.pass(away)
	f.plane[0].again()
	f.harmed(at, 1)
	a := f.ends(0, 3)
	r.line.wentOn = a.wentOn(at)
	a.explained(f.harms)
}

// oneOfThree kills the node of a cluster that leads the record.
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

// recordLeader is the name of the node that leads the stream of events of the run; it has to have three replicas.
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
