package controller

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"lockstep/internal/wire"
)

// maxCrashes is how many leaderships may fail with the same task of a run in flight before the run is quarantined.
const maxCrashes = 2

// countCrash notes that the run is taken up. A former leadership that did not end in order with the run in flight counts
// as failed. The error is that too many failed: another attempt would end this controller, too.
func (x *execution) countCrash(ctx context.Context) error {
	if x.state.InFlight != "" && x.state.Epoch != x.lease.Epoch() {
		if x.state.Blamed != x.state.InFlight {
			x.state.Blamed, x.state.Crashes = x.state.InFlight, nil
		}
		x.state.Crashes = append(x.state.Crashes, x.state.Epoch)
	}
	if len(x.state.Crashes) >= maxCrashes {
		epochs := strings.ReplaceAll(strings.Trim(fmt.Sprint(x.state.Crashes), "[]"), " ", ", ")
		return fmt.Errorf("controllers failed %d times with %s (epochs %s): look for the cause in the logs of these controllers and report it",
			len(x.state.Crashes), x.queued.describe(x.state.Blamed), epochs)
	}
	x.state.State, x.state.Waiting, x.state.Agents = wire.StateRunning, "", x.queue.names(x.queued)
	x.state.InFlight = wire.StartInFlight
	x.note(ctx)
	return nil
}

// describe names what was in flight, as RunState.InFlight has it.
func (r *queuedRun) describe(inFlight string) string {
	if inFlight == wire.StartInFlight {
		return "this run before its next task"
	}
	if r.Submission != nil {
		for _, t := range r.Submission.Run.Tasks() {
			if t.ID == inFlight {
				return fmt.Sprintf("repetition %d of cell %s (task %s) in flight", t.Repetition, cmp.Or(t.Cell.Name(), t.Cell.ID), inFlight)
			}
		}
	}
	return "task " + inFlight + " in flight"
}

// begins notes what is in flight from now on; empty: nothing is.
func (x *execution) begins(ctx context.Context, what string) {
	ctx, cancel := wire.Lasting(ctx, stopTimeout)
	defer cancel()
	if x.state.InFlight = what; what != "" && what != x.state.Blamed {
		x.state.Blamed, x.state.Crashes = "", nil
	}
	x.note(ctx)
}
