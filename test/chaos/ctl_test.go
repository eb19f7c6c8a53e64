package chaos

import (
	"path/filepath"

	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/test/process"
)

func ctlFaults() []fault {
	return []fault{{name: "ctl killed", short: true, do: ctlKilled}}
}

// ctlKilled kills the ctl that follows the run. The run continues, and ctl runs attach completes the directory.
func ctlKilled(r *row) {
	f := r.startFleet(fleetSpec{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.awaitTaskPhase(r, 2, phase)
	r.describe("kill -9 of ctl in %s", phase)
	at := f.ctl.Kill()
	f.awaitEvent(f.position(), wire.TaskStarted, stepLimit)
	f.attachRun()
	check := f.checkRecord()
	r.line.resumed = check.timeToNextStart(at)
	check.checkInvalidTasks(nil)
}

// attachRun follows the run into the directory of the killed ctl.
func (f *fleet) attachRun() {
	f.t.Helper()
	f.ctl = f.start(process.Command{Name: "attach",
		Argv: []string{filepath.Join(programs, "ctl"), "runs", "attach", f.run.Plan().ID, "--server", f.url, "--runs",
			f.runsDir()}})
	f.ctl.Exits(0)
}
