package controller

import (
	"context"
	"errors"

	"lockstep/internal/wire"
)

// Pulled is what Pull has found of a run.
type Pulled struct {
	Dir  string    // of the run
	End  *wire.End // nil: it has not ended
	Done int       // tasks with an outcome in the directory, of
	Of   int
	// AtMost says that Of may become less: cells are repeated until they are known well enough.
	AtMost bool
}

// Complete tells whether every task has an outcome.
func (p Pulled) Complete() bool { return p.Of > 0 && p.Done == p.Of }

// Pull copies a run's record from the control plane to its directory below root, as far as it is there. A directory that is there is completed:
// what it has already stays. The error wraps wire.ErrNoRecord where the control plane has nothing of the run.
func Pull(ctx context.Context, conn *wire.Client, run, root string) (Pulled, error) {
	f := &follower{conn: conn, root: root, watch: func(Progress) {}}
	var p Pulled
	var err error
	p.End, err = conn.Copy(ctx, run, f.entry)
	if f.dir != nil {
		p.Dir, p.Done, p.Of = f.dir.Dir(), len(f.dir.DoneTasks()), f.rounds.Tasks()
		p.AtMost = f.rounds.Open()
		err = errors.Join(err, f.dir.Close())
	}
	return p, err
}
