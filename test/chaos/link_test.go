package chaos

import (
	"fmt"
	"time"

	"example.org/lockstep/lockstep/internal/wire"
)

func linkFaults() (all []fault) {
	for _, how := range []string{"cut", "silent"} {
		for _, span := range []time.Duration{3 * time.Second, 20 * time.Second} {
			all = append(all, fault{name: fmt.Sprintf("link of an agent %s/%v", how, span), short: how == "cut" &&
				span == 3*time.Second,
				do: func(r *row) { r.linkFails(how, span) }})
		}
	}
	return all
}

// linkFails disconnects an agent from the control plane for some time. Its messages arrive afterwards. A task is not
// affected if the time is shorter than that after which an agent is lost.
func (r *row) linkFails(how string, span time.Duration) {
	victim := r.oneOf("a1", "a2")
	through := map[string]string{}
	var l *link
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}, through: through, before: func(f *fleet) {
		l = r.link(f.plane[0].Port)
		through[victim] = l.url()
	}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	b := f.reach(r, 2, phase)
	r.did("link of agent %s %s for %v in %s", victim, how, span, phase)
	at := time.Now()
	if how == "cut" {
		l.cut()
	} else {
		l.stall()
	}
	r.pass(span)
	l.pass()
	a := f.ends(0, 3)
	r.line.wentOn = a.wentOn(at)
	if _, lost := a.first(wire.AgentLost, at); lost {
		a.noticed(r, at, victim)
		a.repeated(b.Task)
		return
	}
	if span > 2*wire.LostAfter && phase != inTeardown {
		r.t.Errorf("agent %s was away for %v in %s, and the record does not say that it was lost", victim, span, phase)
	}
}
