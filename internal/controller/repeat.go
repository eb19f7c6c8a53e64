package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/sampling"
	"lockstep/internal/wire"
)

// replayedState is what the record of a run tells a leader that takes it up.
type replayedState struct {
	submission  uint64
	planned     bool
	accepted    bool      // by a former leader, which did not come to the end
	ended       *wire.End // of this submission
	outcomes    map[string]bool
	rounds      *sampling.Rounds
	ran, failed int                 // outcomes of this submission
	began, over time.Time           // of this submission; zero: not yet
	flight      *wire.RunEvent      // the last attempt that was begun, if nothing tells that it ended
	searches    map[string]searched // of this submission that have no outcome yet, by task
	// tries are, by task, the attempts of this submission that do not count: those that failed and were to be repeated, and
	// those that have no end because their controller was lost. Those of a search are of all its steps.
	tries map[string][]plan.Tried
}

// read takes the next entry.
func (h *replayedState) read(e wire.Entry) {
	switch {
	case e.Plan != nil:
		h.planned = true
	case e.Outcome != nil:
		h.outcomes[e.Outcome.Task] = true
		h.rounds.Add(*e.Outcome)
		h.ran++
		if e.Outcome.Failed() {
			h.failed++
		}
		h.flight = nil
	case e.Event != nil:
		h.event(e.Event)
	}
}

func (h *replayedState) event(e *wire.RunEvent) {
	tries := h.tries[e.Task]
	last := len(tries) - 1
	open := last >= 0 && tries[last].Name == e.Try
	switch e.Kind {
	case wire.RunAccepted:
		h.accepted, h.ran, h.failed, h.flight, h.began = true, 0, 0, nil, e.At
	case wire.TaskStarted:
		h.flight = e
		h.tries[e.Task] = append(tries, plan.Tried{Name: e.Try, Kind: plan.FailedInterrupted})
	case wire.TaskInterrupted:
		h.flight = nil
	case wire.TryEnded:
		h.flight = nil
		if open && e.Tried != nil {
			tries[last] = *e.Tried
		}
	case wire.StepEnded:
		h.flight = nil
		if open {
			h.tries[e.Task] = tries[:last]
		}
		if e.Step != nil && e.Outcome != nil {
			h.searches[e.Task] = h.searches[e.Task].and(*e.Step, *e.Outcome)
		}
	case wire.RunEnded:
		h.accepted, h.flight = false, nil
		clear(h.searches)
		clear(h.tries)
		if e.End != nil && e.End.Submission == h.submission {
			h.ended, h.over = e.End, e.At
		}
	}
}

// times puts right when a run began and ended: its record counts, what was noted of it may be lost.
func (h *replayedState) times(s *wire.RunState) {
	if h.accepted || h.ended != nil {
		s.Started = h.began
	}
	s.Ended = h.over
}

// takeOver continues with a run that a former leader had begun. The attempt in flight has no outcome, and its task is
// repeated: another leader does not know what the agents reported to the former one.
func (x *execution) takeOver(ctx context.Context, h replayedState) error {
	x.end.Ran, x.end.Failed = h.ran, h.failed
	what := fmt.Sprintf("controller %s has taken over", x.lease.Name())
	if x.record.Former() == x.lease.Epoch() {
		what = fmt.Sprintf("controller %s continues the run after an error of the control plane", x.lease.Name())
	}
	e := wire.RunEvent{At: time.Now(), Kind: wire.TakenOver, Of: x.of}
	if f := h.flight; f != nil {
		e.Task, e.Try, e.N = f.Task, f.Try, f.N
		what += ": the task in flight is repeated"
	} else {
		what += ": no task was in flight"
	}
	e.Detail = what
	if err := x.record.Event(ctx, e); err != nil || h.flight == nil {
		return err
	}
	x.log.Warn("took a run over", "task", e.Task, "try", e.Try, "what", what, "epoch", x.lease.Epoch(), "former", x.record.Former())
	x.agents.awaitThat(ctx, finishLimit, func() bool { // agents end the former attempt: its load would disturb the next one
		ref := wire.Ref{Run: x.run.ID, Task: e.Task, Try: e.Try}
		return !slices.ContainsFunc(x.agents.list(), func(a wire.AgentInfo) bool { return a.Try == ref })
	})
	return x.record.Event(ctx, wire.RunEvent{At: time.Now(), Kind: wire.TaskInterrupted, Task: e.Task, Try: e.Try, N: e.N, Of: x.of, Detail: what})
}
