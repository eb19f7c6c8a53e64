package controller

import (
	"context"
	"errors"
	"slices"

	past "lockstep/internal/history"
	"lockstep/internal/plan"
)

// history returns the values of cells over the runs that there are copies of.
func (l *leader) history(q plan.HistoryQuery) (plan.HistoryAnswer, error) {
	if l.cfg.Copies == "" {
		return plan.HistoryAnswer{}, errors.New("the controller keeps no history: it needs a folder, controller --dir; ctl pull and ctl history --local look at copies here")
	}
	return past.Of(l.cfg.Copies).Answer(q)
}

// addBases gives a run the numbers of baselines of this controller's folder for those of its rules that have none yet.
func (l *leader) addBases(run *plan.Run) {
	if len(run.Regressions()) == 0 {
		return
	}
	var own []plan.Base
	if l.cfg.Copies != "" {
		own = past.Of(l.cfg.Copies).Bases(*run)
	}
	for _, b := range own {
		i := slices.IndexFunc(run.Bases, func(has plan.Base) bool { return has.Name == b.Name })
		switch {
		case i < 0:
			run.Bases = append(run.Bases, b)
		case run.Bases[i].Why != "" && b.Why == "":
			run.Bases[i] = b
		}
	}
}

// fillHistory reads the copies that the history does not have: those of former leaders, and those that somebody put there.
func (l *leader) fillHistory(ctx context.Context) {
	in, err := past.Of(l.cfg.Copies).Fresh(ctx)
	for _, w := range in.Warnings {
		l.cfg.Log.Warn("fill the history", "left out", w)
	}
	if err != nil && ctx.Err() == nil {
		l.cfg.Log.Error("fill the history: make it anew with ctl history reindex", "err", err)
	}
}
