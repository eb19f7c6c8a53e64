package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	past "example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/internal/wire"
)

// runHistory reads runs that have ended, from this controller's copies and the control plane. Safe for concurrent use.
type runHistory struct {
	store *wire.Store
	lease *wire.Leader
	dir   string // of the copies; empty: none
	log   *slog.Logger
}

// answer returns the values of cells over the runs in the folder.
func (h *runHistory) answer(q plan.HistoryQuery) (plan.HistoryAnswer, error) {
	if h.dir == "" {
		return plan.HistoryAnswer{},
			errors.New("the controller has no history: start it with --dir, or use ctl runs pull and ctl history --context local")
	}
	return past.Of(h.dir).Answer(q)
}

// fillLimit bounds how long a run waits for fill.
const fillLimit = 30 * time.Second

// fill adds missing runs to the history: copies in this controller's folder, which another leader or a person may have
// put there, and records on the control plane. It reads only the matching records, and returns the runs that match.
func (h *runHistory) fill(ctx context.Context, match func(wire.RunState) bool) (matching []wire.RunState) {
	store := past.Of(h.dir)
	var in past.Indexed
	err := os.MkdirAll(h.dir, 0o700) // the folder may not exist yet
	if err == nil {
		in, err = store.Fresh(ctx)
	}
	for _, w := range in.Warnings {
		h.log.Warn("cannot add to the history", "omitted", w)
	}
	var has map[string]past.IndexedRun
	if err == nil {
		has, err = store.Runs()
	}
	if err == nil {
		matching, err = h.store.Runs(ctx)
	}
	matching = slices.DeleteFunc(matching, func(r wire.RunState) bool { return !r.Over() || r.Done == 0 || !match(r) })
	for _, r := range matching {
		if err != nil || ctx.Err() != nil {
			break
		}
		if r.Done <= has[r.Run].Done {
			continue
		}
		run, outcomes, unread := h.outcomes(ctx, r.Run)
		switch {
		case errors.Is(unread, wire.ErrNoRun), errors.Is(unread, wire.ErrNoRecord): // deleted to free space
		case unread != nil:
			h.log.Warn("cannot add to the history", "omitted", unread)
		case len(outcomes) > has[r.Run].Done:
			err = store.Put(run, outcomes)
		}
	}
	if err != nil && ctx.Err() == nil {
		h.log.Error("cannot update the history; rebuild it with ctl history reindex", "err", err)
	}
	return matching
}

// outcomes reads the plan and the outcomes of an ended run from the control plane. The error wraps wire.ErrNoRun or
// wire.ErrNoRecord if the control plane does not have them.
func (h *runHistory) outcomes(ctx context.Context, id string) (run plan.Run, all []plan.Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	done := map[string]bool{}
	_, err = h.store.Read(ctx, wire.RecordQuery{Run: id, Summary: true, Wait: true}, func(e wire.Entry) error {
		switch {
		case e.Plan != nil && run.ID == "":
			run = *e.Plan
		case e.Outcome != nil && !done[e.Outcome.Task]:
			done[e.Outcome.Task] = true
			all = append(all, *e.Outcome)
		}
		return e.Err
	})
	if err == nil && run.ID == "" { // the run was refused
		err = fmt.Errorf("read run %s: %w", id, wire.ErrNoRecord)
	}
	return run, all, err
}

// setBaseline stores an ended run as a baseline. It uses the record or the copy, whichever has more outcomes.
func (h *runHistory) setBaseline(ctx context.Context, q wire.BaselineQuery) (a wire.BaselineAnswer, err error) {
	state, err := h.store.RunState(ctx, q.Run)
	if err == nil && state.Run != "" && !state.Over() {
		err = fmt.Errorf("run %s has not ended; set the baseline after its end", q.Run)
	}
	if err != nil {
		return a, err
	}
	run, outcomes, err := h.outcomes(ctx, q.Run)
	if h.dir != "" {
		if record, copied, unread := past.Of(h.dir).Record(q.Run); unread == nil && len(copied) > len(outcomes) {
			run, outcomes, err = record.Plan(), copied, nil
		}
	}
	if errors.Is(err, wire.ErrNoRun) || errors.Is(err, wire.ErrNoRecord) {
		err = fmt.Errorf("%w, and the leading controller has no copy; use a newer run", err)
	}
	if err != nil {
		return a, err
	}
	b, note, err := past.NewBaseline(q.Name, q.By, run, outcomes)
	if err != nil {
		return a, err
	}
	return wire.BaselineAnswer{Baseline: b.Baseline, Note: note}, h.lease.PutBaseline(ctx, b)
}

// addBases adds the numbers of the control plane's baselines to a run, for rules without. An error may be temporary.
func (h *runHistory) addBases(ctx context.Context, run *plan.Run) error {
	for _, name := range slices.Sorted(maps.Keys(rules.Regressions(*run))) {
		i := slices.IndexFunc(run.Bases, func(has plan.Base) bool { return has.Name == name })
		if i >= 0 && (run.Bases[i].Why == "" || h.store.Local()) { // a local run has those of its folder
			continue
		}
		wire.Progress(ctx, 3*fillLimit) // another process may hold the lock of the history
		b, err := h.base(ctx, *run, name)
		if err != nil {
			return err
		}
		if i < 0 {
			run.Bases = append(run.Bases, b)
		} else {
			run.Bases[i] = b
		}
	}
	return nil
}

// base returns the numbers of a baseline of the control plane, with the run-to-run spread. The spread is computed from
// the available earlier runs: those in this controller's folder, and those on the control plane.
func (h *runHistory) base(ctx context.Context, run plan.Run, name string) (plan.Base, error) {
	baseline, err := h.store.Baseline(ctx, name)
	switch {
	case errors.Is(err, wire.ErrNoBaseline):
		return plan.Base{Name: name, Why: plan.NoBaseline(name,
			"on the control plane (list those of a folder with ctl history baseline list --context local --runs DIR)")}, nil
	case errors.Is(err, wire.ErrUnreadable):
		return plan.Base{Name: name, Why: fmt.Sprintf("%v; set it again with ctl history baseline set RUN", err)}, nil
	case err != nil:
		return plan.Base{}, err
	case h.dir == "":
		const why = "the baseline %q requires earlier runs, and the controller stores none; start it with --dir"
		return plan.Base{Name: name, Why: fmt.Sprintf(why, name)}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fillLimit)
	defer cancel()
	since := baseline.Plan.Started
	listed := h.fill(ctx, func(r wire.RunState) bool {
		return r.Name == run.Name && r.Run != run.ID && !r.Submitted.Before(since)
	})
	store := past.Of(h.dir)
	has, err := store.Runs()
	if err == nil && has[baseline.Plan.ID].Done < len(baseline.Outcomes) {
		err = store.Put(baseline.Plan, baseline.Outcomes)
		has[baseline.Plan.ID] = past.IndexedRun{Matrix: baseline.Plan.Name, Started: since}
	}
	if err != nil {
		return plan.Base{Name: name, Why: fmt.Sprintf("cannot read the earlier runs: %v", err)}, nil
	}
	b := store.Base(run, baseline)
	earlier := map[string]bool{}
	for id, r := range has {
		if r.Matrix == run.Name && id != run.ID && !r.Started.Before(since) && !r.Started.After(run.Started) {
			earlier[id] = true
		}
	}
	b.Available = len(earlier)
	for _, r := range listed {
		earlier[r.Run] = true
	}
	b.Earlier = len(earlier)
	return b, nil
}
