package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/runview"
	"lockstep/internal/sampling"
	"lockstep/internal/wire"
)

// maxCrashes is how many leaderships may fail with the same task of a run in flight before the run is quarantined.
const maxCrashes = 2

// journal writes the record of an executed run, and notes the state of the run for people. It belongs to one goroutine.
type journal struct {
	lease  *wire.Leader
	record *wire.Recorder
	status *Status
	log    *slog.Logger
	state  wire.RunState
	end    wire.End // of this submission
	of     int      // tasks: the maximum, while the rounds are open
}

// countCrash counts a former leadership that did not end in order with the run in flight as failed. The error is that
// too many failed: another attempt would end this controller, too.
func (j *journal) countCrash(s *wire.Submission) error {
	if j.state.InFlight != "" && j.state.Epoch != j.lease.Epoch() {
		if j.state.Blamed != j.state.InFlight {
			j.state.Blamed, j.state.Crashes = j.state.InFlight, nil
		}
		j.state.Crashes = append(j.state.Crashes, j.state.Epoch)
	}
	if len(j.state.Crashes) < maxCrashes {
		return nil
	}
	what := "task " + j.state.Blamed + " in flight"
	if j.state.Blamed == wire.StartInFlight {
		what = "this run before its next task"
	} else if s != nil {
		for _, c := range s.Run.Cells {
			if n, is := strings.CutPrefix(j.state.Blamed, c.ID+"-r"); is {
				what = fmt.Sprintf("repetition %s of cell %s (task %s) in flight", n, cmp.Or(c.Name(), c.ID),
					j.state.Blamed)
			}
		}
	}
	epochs := strings.ReplaceAll(strings.Trim(fmt.Sprint(j.state.Crashes), "[]"), " ", ", ")
	return fmt.Errorf("controllers failed %d times with %s (epochs %s): look for the cause in the logs of these controllers and report it",
		len(j.state.Crashes), what, epochs)
}

// inFlight notes what is in flight from now on; empty: nothing is.
func (j *journal) inFlight(ctx context.Context, what string) {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	if j.state.InFlight = what; what != "" && what != j.state.Blamed {
		j.state.Blamed, j.state.Crashes = "", nil
	}
	j.note(ctx)
}

// note stores the state of the run. It is for people: the record counts.
func (j *journal) note(ctx context.Context) {
	if err := j.lease.PutRun(ctx, j.state); err != nil && ctx.Err() == nil {
		j.log.Warn("note how a run stands", "err", err)
	}
}

// setTimes sets when a run began and ended, by its record: what was noted of it may be lost. It reports whether this
// submission of the run has ended.
func setTimes(s *wire.RunState, h *runview.State, submission uint64) (ended bool) {
	s.Ended = time.Time{}
	if ended = h.End != nil && h.End.Submission == submission; ended {
		s.Ended = h.Ended
	}
	if h.Accepted || ended {
		s.Started = h.Began
	}
	return ended
}

// count notes how many tasks the run has, by what is known now.
func (j *journal) count(rounds *sampling.Rounds) {
	j.of = rounds.Tasks()
	j.state.Tasks, j.state.AtMost = j.of, rounds.Open()
}

// event stores an event of the run, also for a while after the end of ctx.
func (j *journal) event(ctx context.Context, e wire.RunEvent) error {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	e.At, e.Of = time.Now(), j.of
	return j.record.Event(ctx, e)
}

// outcome stores an outcome, also for a while after the end of ctx, and adds it to the rounds.
func (j *journal) outcome(ctx context.Context, o plan.Outcome, rounds *sampling.Rounds) error {
	j.end.Ran++
	if o.Failed() {
		j.end.Failed++
	}
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	if err := j.record.Outcome(ctx, o); err != nil {
		return err
	}
	j.status.count(o.Verdict)
	rounds.Add(o)
	j.count(rounds)
	j.state.InFlight, j.state.Blamed, j.state.Crashes = "", "", nil
	j.state.Done++
	if o.Failed() {
		j.state.Failed++
	}
	j.note(ctx)
	return nil
}

// finish stores the end of the run as the last event of its record, and closes the journal. On an error the run stays
// in the queue, for another attempt. Each takes stopTimeout at most, also after the end of ctx.
func (j *journal) finish(ctx context.Context) error {
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := j.record.Event(storing, wire.RunEvent{At: time.Now(), Kind: wire.RunEnded, Of: j.of,
		End: &j.end}); err != nil {
		return fmt.Errorf("end run: %w", err)
	}
	j.log.Info("run ended", "reason", j.end.Reason, "ran", j.end.Ran, "failed", j.end.Failed)
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer done()
	return j.close(closing)
}

// close notes how the run ended, as its record says, and deletes its submission.
func (j *journal) close(ctx context.Context) error {
	j.state.State, j.state.Detail, j.state.Agents, j.state.Waiting = string(j.end.Reason), j.end.Detail, nil, ""
	j.state.InFlight, j.state.Blamed, j.state.Crashes = "", "", nil
	if j.state.Ended.IsZero() {
		j.state.Ended = time.Now()
	}
	j.note(ctx)
	if err := j.lease.Dequeue(ctx, j.state.Run, j.end.Submission); err != nil {
		return fmt.Errorf("end run: %w", err)
	}
	return nil
}
