package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runview"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/wire"
)

// maxCrashes is how many leaderships may fail with the same task of a run in flight before the run is quarantined.
const maxCrashes = 2

// journal writes the record and the state of an executed run. One goroutine uses it.
type journal struct {
	lease  *wire.Leader
	record *wire.Recorder
	status *Status
	log    *slog.Logger
	state  wire.RunState
	end    wire.End // of this submission
	of     int      // number of tasks; the maximum while the rounds are open
}

// countCrash counts a former leadership that failed with the run in flight. After maxCrashes it returns an error.
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
	return fmt.Errorf("controllers failed %d times with %s (epochs %s); find the cause in the logs of these controllers and report it",
		len(j.state.Crashes), what, epochs)
}

// inFlight stores what is in flight from now on; empty: nothing.
func (j *journal) inFlight(ctx context.Context, what string) {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	if j.state.InFlight = what; what != "" && what != j.state.Blamed {
		j.state.Blamed, j.state.Crashes = "", nil
	}
	j.note(ctx)
}

// note stores the state of the run. An error is only logged: the state is for people, and the record is authoritative.
func (j *journal) note(ctx context.Context) {
	if err := j.lease.PutRun(ctx, j.state); err != nil && ctx.Err() == nil {
		j.log.Warn("cannot store the state of a run", "err", err)
	}
}

// setTimes sets when a run began and ended from its record. It reports whether this submission of the run has ended.
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

func (j *journal) count(rounds *sampling.Rounds) {
	j.of = rounds.Tasks()
	j.state.Tasks, j.state.AtMost = j.of, rounds.Open()
}

// event stores an event of the run, also within stopTimeout after the end of ctx.
func (j *journal) event(ctx context.Context, e wire.RunEvent) error {
	ctx, cancel := wire.WithGracePeriod(ctx, stopTimeout)
	defer cancel()
	e.At, e.Of = time.Now(), j.of
	return j.record.Event(ctx, e)
}

// outcome stores an outcome, also within stopTimeout after the end of ctx, and adds it to the rounds.
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

// finish stores the end of the run as the last event of its record, and then closes the journal. On an error the run
// stays in the queue for another attempt. Each of the two takes at most stopTimeout, also after the end of ctx.
func (j *journal) finish(ctx context.Context) error {
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := j.record.Event(storing, wire.RunEvent{At: time.Now(), Kind: wire.RunEnded, Of: j.of,
		End: &j.end}); err != nil {
		return fmt.Errorf("end run: %w", err)
	}
	j.log.Info("run ended", "reason", j.end.Reason, "ran", j.end.Ran, "failed", j.end.Failed)
	return j.close(ctx)
}

// close stores the end in the run's state and deletes the submission, within stopTimeout, also after the end of ctx.
func (j *journal) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	j.state.State, j.state.Detail, j.state.Agents, j.state.Waiting = string(j.end.Reason), j.end.Detail, nil, ""
	j.state.InFlight, j.state.Blamed, j.state.Crashes = "", "", nil
	j.state.Ended = cmp.Or(j.state.Ended, time.Now())
	j.note(ctx)
	if err := j.lease.Dequeue(ctx, j.state.Run, j.end.Submission); err != nil {
		return fmt.Errorf("end run: %w", err)
	}
	return nil
}
