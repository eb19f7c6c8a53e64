package controller

import (
	"context"
	"fmt"
	"strings"

	"lockstep/internal/matrix"
	"lockstep/internal/plan"
	"lockstep/internal/schedule"
)

// Expand makes a run of a schedule's matrix, in this process. It ignores ctx while CUE evaluates the matrix, which may take
// any time and any memory: see Config.Expand.
func Expand(ctx context.Context, from schedule.Matrix) (run plan.Run, err error) {
	m, err := matrix.Load(from.File, []byte(from.Text), matrix.Narrow{Short: from.Short, Set: from.Set, Only: from.Only})
	if err != nil {
		return run, err
	}
	if run, err = m.Run(ctx); err != nil {
		return run, err
	}
	if literals := m.Literals(); len(literals) > 0 {
		return run, fmt.Errorf("the matrix of a schedule is kept on the control plane and must not hold secrets; refer to them, as in ${env:NAME}:\n%s", strings.Join(literals, "\n"))
	}
	run.Version, run.Source.Path, run.Source.Server = plan.RecordFormat, from.Path, from.Server
	return run, nil
}
