package chaos

import "time"

func planeFaults() []fault {
	return []fault{
		{name: "control plane killed/" + inMeasure, do: func(r *row) { r.planeKilled(inMeasure) }},
		{name: "control plane killed/anywhere", do: func(r *row) { r.planeKilled(r.oneOf(phases...)) }},
	}
}

// planeKilled kills the NATS server of the control plane and starts it again.
func (r *row) planeKilled(phase string) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	f.reach(r, 2, phase)
	away := r.between(0, 8*time.Second).Round(100 * time.Millisecond)
	r.did("kill -9 of the control plane's NATS in %s, restarted after %v", phase, away)
	at := f.plane[0].kill()
	r.pass(away)
	f.plane[0].again()
	a := f.ends(0, 3)
	r.line.wentOn = a.wentOn(at)
}
