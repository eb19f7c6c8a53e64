package chaos

import (
	"context"

	"lockstep/internal/controller"
	"lockstep/internal/wire"
)

func ctlFaults() []fault {
	return []fault{{name: "ctl killed", short: true, do: ctlKilled}}
}

// ctlKilled kills the ctl that follows the run: the run goes on, and following it again completes the directory.
func ctlKilled(r *row) {
	f := r.fleet(shape{plane: 1, agents: []string{"a1", "a2"}})
	f.submit(f.matrix(2, ""))
	phase := r.oneOf(phases...)
	f.reach(r, 2, phase)
	r.did("kill -9 of ctl in %s", phase)
	at := f.ctl.kill()
	f.event(f.mark(), wire.TaskStarted, stepLimit)
	f.attached()
	a := f.account()
	r.line.wentOn = a.wentOn(at)
	a.verdict("", "")
}

// attached follows the run into the directory that a ctl that was killed has begun.
func (f *fleet) attached() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	conn, err := wire.Dial(ctx, f.url, wire.Auth{})
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := controller.Record(ctx, conn, f.run.Plan().ID, f.followed(), nil, nil); err != nil {
		f.t.Fatalf("follow the run again: %v", err)
	}
}
