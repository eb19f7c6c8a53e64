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
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.reach(r, 2, phase)
	r.did("kill -9 of ctl in %s", phase)
	at := f.ctl.Kill()
	f.event(f.mark(), wire.TaskStarted, stepLimit)
	f.attached()
	a := f.account()
	r.line.wentOn = a.wentOn(at)
	a.explained(nil)
}

// attached follows the run into the directory of the killed ctl.
func (f *fleet) attached() {
	f.t.Helper()
	f.ctl = f.start(process.Command{Name: "attach",
		Argv: []string{filepath.Join(programs, "ctl"), "runs", "attach", f.run.Plan().ID, "--server", f.url, "--runs",
			f.followed()}})
	f.ctl.Exits(0)
}
