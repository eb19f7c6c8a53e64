package chaos

import (
	"fmt"
	"strings"
	"time"
)

func combinedFaults() []fault {
	return []fault{{name: "several faults in one run", do: faultsInSeveralTasks}}
}

// faultsInSeveralTasks injects several faults into one run, in different tasks.
func faultsInSeveralTasks(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, controllers: []string{"c1", "c2"}, agents: []string{"a1", "a2", "a3"}})
	f.submit(f.matrix(5, ""))
	var did []string
	for n := 2; n <= 8; n += 2 {
		phase := r.oneOf(phases...)
		f.awaitTaskPhase(r, n, phase)
		downtime := r.between(0, 6*time.Second).Round(100 * time.Millisecond)
		what := r.oneOf("c1", "c2", "a1", "a2", "a3", "plane")
		did = append(did, fmt.Sprintf("%s for %v in %s", what, downtime, phase))
		switch {
		case what == "plane":
			at := f.plane[0].Kill()
			r.wait(downtime)
			f.plane[0].start()
			f.addFaultPeriod(at, 1)
		case f.controllers[what] != nil:
			f.controllers[what].Kill()
			r.wait(downtime)
			f.startController(what)
		default:
			at := f.agents[what].Kill()
			r.wait(downtime)
			f.restart(what)
			f.addFaultPeriod(at, 1)
		}
	}
	r.describe("kill -9 of %s", strings.Join(did, ", "))
	f.awaitEnd(0, 3).checkInvalidTasks(f.faultPeriods)
}
