package chaos

import (
	"fmt"
	"time"

	"example.org/lockstep/lockstep/internal/wire"
)

func linkFaults() (all []fault) {
	for _, how := range []string{"cut", "silent"} {
		for _, duration := range []time.Duration{3 * time.Second, 20 * time.Second} {
			all = append(all, fault{name: fmt.Sprintf("link of an agent %s/%v", how, duration), short: how == "cut" &&
				duration == 3*time.Second,
				do: func(r *row) { r.linkFails(how, duration) }})
		}
	}
	return all
}

// linkFails disconnects an agent from the control plane for some time. Its messages arrive afterwards. A task is not
// affected if the time is shorter than that after which an agent is lost.
func (r *row) linkFails(how string, duration time.Duration) {
	target := r.oneOf("a1", "a2")
	serverURLs := map[string]string{}
	var l *link
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}, serverURLs: serverURLs, before: func(f *fleet) {
		l = r.newLink(f.plane[0].Port)
		serverURLs[target] = l.url()
	}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	b := f.awaitTaskPhase(r, 2, phase)
	r.describe("link of agent %s %s for %v in %s", target, how, duration, phase)
	at := time.Now()
	if how == "cut" {
		l.cut()
	} else {
		l.stall()
	}
	r.wait(duration)
	l.restore()
	check := f.awaitEnd(0, 3)
	r.line.resumed = check.timeToNextStart(at)
	if _, lost := check.firstEvent(wire.AgentLost, at); lost {
		check.checkAgentLost(r, at, target)
		check.checkRepeated(b.Task)
		return
	}
	if duration > 2*wire.LostAfter && phase != inTeardown {
		r.t.Errorf("agent %s was disconnected for %v in %s, but the record has no event that it was lost", target,
			duration,
			phase)
	}
}
