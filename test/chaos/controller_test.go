package chaos

import (
	"time"
)

func controllerFaults() (all []fault) {
	for _, phase := range phases {
		all = append(all, fault{name: "controller killed/" + phase, short: phase == inMeasure, do: func(r *row) { r.controllerKilled(phase, 0) }})
		all = append(all, fault{name: "controller killed beside its control plane/" + phase, do: func(r *row) { r.controllerKilled(phase, 1) }})
	}
	return all
}

// controllerKilled kills the only controller, in which the control plane is where nodes is 0, and starts it again.
func (r *row) controllerKilled(phase string, nodes int) {
	f := r.fleet(shape{plane: nodes, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	f.reach(r, 2, phase)
	away := r.between(0, 8*time.Second).Round(100 * time.Millisecond)
	r.did("kill -9 of the controller in %s, restarted after %v", phase, away)
	at := f.controllers["controller"].kill()
	r.pass(away)
	f.startController("controller")
	a := f.ends(0, 3)
	r.line.wentOn = a.wentOn(at)
	a.verdict("", "")
}
