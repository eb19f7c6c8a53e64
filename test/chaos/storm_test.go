package chaos

import (
	"fmt"
	"strings"
	"time"
)

func stormFaults() []fault {
	return []fault{{name: "one thing after the other", do: storm}}
}

// storm injects several faults into one run, in different tasks.
func storm(r *row) {
	f := r.fleet(shape{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2", "a3"}})
	f.submit(f.matrix(5, ""))
	var did []string
	for n := 2; n <= 8; n += 2 {
		phase := r.oneOf(phases...)
		f.reach(r, n, phase)
		away := r.between(0, 6*time.Second).Round(100 * time.Millisecond)
		what := r.oneOf("c1", "c2", "a1", "a2", "a3", "plane")
		did = append(did, fmt.Sprintf("%s for %v in %s", what, away, phase))
		switch {
		case what == "plane":
			at := f.plane[0].Kill()
			r.pass(away)
			f.plane[0].again()
			f.harmed(at, 1)
		case f.controllers[what] != nil:
			f.controllers[what].Kill()
			r.pass(away)
			f.startController(what)
		default:
			at := f.agents[what].Kill()
			r.pass(away)
			f.restart(what)
			f.harmed(at, 1)
		}
	}
	r.did("kill -9 of %s", strings.Join(did, ", "))
	f.ends(0, 3).explained(f.harms)
}
