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
		what := "task " + x.state.Blamed + " in flight"
		if x.state.Blamed == wire.StartInFlight {
			what = "this run before its next task"
		} else if s := x.queuedRun.Submission; s != nil {
			for _, c := range s.Run.Cells {
				if n, is := strings.CutPrefix(x.state.Blamed, c.ID+"-r"); is {
					what = fmt.Sprintf("repetition %s of cell %s (task %s) in flight", n, cmp.Or(c.Name(), c.ID), x.state.Blamed)
				}
			}
		}
		epochs := strings.ReplaceAll(strings.Trim(fmt.Sprint(x.state.Crashes), "[]"), " ", ", ")
		return fmt.Errorf("controllers failed %d times with %s (epochs %s): look for the cause in the logs of these controllers and report it",
			len(x.state.Crashes), what, epochs)
	}
	if x.queuedRun.refusal == nil {
		x.state.State, x.state.Waiting, x.state.Agents = wire.StateRunning, "", x.queue.names(x.queuedRun)
	}
	x.state.InFlight = wire.StartInFlight
	x.note(ctx)
	return nil
}

// begins notes what is in flight from now on; empty: nothing is.
func (x *execution) begins(ctx context.Context, what string) {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	if x.state.InFlight = what; what != "" && what != x.state.Blamed {
		x.state.Blamed, x.state.Crashes = "", nil
	}
	x.note(ctx)
}
