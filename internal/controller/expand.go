package controller

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"lockstep/internal/matrix"
	"lockstep/internal/plan"
	"lockstep/internal/schedule"
)

// expandLimit bounds how long the slot of a schedule waits for its matrix.
const expandLimit = 5 * time.Minute

// expanding holds a place for each matrix of a schedule that is being expanded in this process. CUE cannot be told to stop: a matrix that takes for ever keeps
// its place, and no more than these processor cores are lost to such ones.
var expanding = make(chan struct{}, 2)

// expandWithin returns what expand makes, or an error when limit has passed or ctx has ended; expand goes on alone then, and its place is taken until it is done.
func expandWithin(ctx context.Context, limit time.Duration, expand func(context.Context) (plan.Run, error)) (plan.Run, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("expand matrix: it takes longer than %v", limit))
	defer cancel()
	select {
	case expanding <- struct{}{}:
	case <-ctx.Done():
		return plan.Run{}, fmt.Errorf("%w (others of this controller's schedules are being expanded)", context.Cause(ctx))
	}
	type made struct {
		run plan.Run
		err error
	}
	done, place := make(chan made, 1), expanding
	go func() {
		defer func() { <-place }()
		run, err := expand(ctx)
		done <- made{run, err}
	}()
	select {
	case m := <-done:
		return m.run, m.err
	case <-ctx.Done():
		return plan.Run{}, context.Cause(ctx)
	}
}

// expand makes a run of a schedule's matrix. Whatever the matrix is, what comes of it is a run or an error.
func expand(ctx context.Context, from schedule.Matrix) (run plan.Run, err error) {
	defer func() {
		if r := recover(); r != nil { // text from the control plane must not end the fleet's controllers one after the other
			err = fmt.Errorf("expand matrix: %v\n%s", r, debug.Stack())
		}
	}()
	m, err := matrix.Load(from.File, []byte(from.Text), matrix.Narrow{Short: from.Short, Set: from.Set, Only: from.Only})
	if err != nil {
		return run, err
	}
	if run, err = m.Run(ctx); err != nil {
		return run, err
	}
	if literals := run.Literals(); len(literals) > 0 {
		return run, fmt.Errorf("the matrix of a schedule is kept on the control plane and must not hold secrets; refer to them, as in ${env:NAME}:\n%s", strings.Join(literals, "\n"))
	}
	run.Version, run.Source.Path, run.Source.Server = plan.Protocol, from.Path, from.Server
	return run, nil
}
