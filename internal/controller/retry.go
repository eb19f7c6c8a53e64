package controller

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

// counted runs a task, or a step of a search, until a try of it counts, as its cell's policy has it (plan.Cell.Retry): a try that failed in a
// way that the policy names is stored in the record with what came of it, and only then another begins, after the run's settle, with the
// agents that are there. It returns the try that counts and appends those before it to tries. Errors are those of try.
//
// A broken promise is an answer whatever else failed, and is never tried again.
func (x *execution) counted(ctx context.Context, t plan.Task, n int, detail string, tries []plan.Tried) (tried, []plan.Tried, error) {
	for {
		y, err := x.try(ctx, t, n, detail)
		if err != nil {
			return y, tries, err
		}
		kind, why := failureOf(y.outcome, y.failure)
		if kind == "" || !t.Cell.Retry.Again(kind, tries) {
			return y, tries, nil
		}
		o := after(tries, y.outcome)
		failed := plan.Tried{Name: y.name, Kind: kind, Reason: why}
		tries = append(slices.Clone(tries), failed)
		x.log.Warn("task is tried again", "task", t.ID, "try", len(tries), "why", failed.String())
		x.begins(ctx, "")
		e := wire.RunEvent{Kind: wire.TryEnded, Task: o.Task, Try: failed.Name, N: n, Detail: failed.String(), Tried: &failed, Outcome: &o}
		if err := x.event(ctx, e); err != nil {
			return tried{}, tries, err
		}
		if err := pause(x.between, x.run.Settle.D()); err != nil {
			return tried{}, tries, err
		}
	}
}

// failureOf is the kind of a try's failure and why; empty, if it did not fail or its outcome is an answer all the same.
func failureOf(o plan.Outcome, words string) (plan.FailureKind, string) {
	switch {
	case o.Verdict == plan.Invalid:
		return "", ""
	case o.Failure != "":
		return o.Failure, cmp.Or(words, strings.Join(o.Reasons, "; "))
	}
	for _, v := range o.Values {
		if slices.Contains(v.Flags, plan.Skewed) {
			return plan.FailedSkewed, "the agents did not start together"
		}
	}
	return "", ""
}

// after is the outcome of the try that counts, with those before it.
func after(tries []plan.Tried, o plan.Outcome) plan.Outcome {
	o.Tries = tries
	if o.Try = 1; o.Search == nil {
		o.Try += len(tries)
	}
	return o
}
