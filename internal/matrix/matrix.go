// Package matrix loads a CUE matrix file, reports every fault in it at once, in plain words and with its place, and
// expands it into cells in the order of the matrix. It is the only home of CUE; what it hands on is plain data.
package matrix

import (
	"context"
	"errors"
	"iter"
	"time"

	"lockstep/internal/plan"
)

// MinMessage is the smallest message.size in bytes: the envelope with which every body begins must fit.
const MinMessage = 64

// Narrow is how the command line changes a matrix without editing it.
type Narrow struct {
	Short bool     // replace what the matrix's short form replaces
	Set   []string // path=value, a CUE expression: "axes.threads=[1,5]"
	Only  []string // axis=value[,value]: keep only these combinations
}

// Combination is one combination of axis values: a cell to run, or why it is not run. Exactly one is not nil.
type Combination struct {
	Cell     *plan.Cell
	Excluded *plan.Excluded
}

// Matrix is a loaded matrix without faults. It is immutable and safe for concurrent use.
type Matrix struct{}

// Load parses, narrows and checks a matrix. A matrix with faults gives an error of type Faults that holds all of
// them. file is only for messages and for the record.
func Load(file string, source []byte, n Narrow) (*Matrix, error) {
	return nil, errors.New("matrix: not built yet")
}

// Expand yields the combinations in the order of the matrix, the first axis outermost. It ends after the first
// error: Faults of the combinations, or ctx's.
func (m *Matrix) Expand(ctx context.Context) iter.Seq2[Combination, error] {
	return func(yield func(Combination, error) bool) {}
}

// Run collects everything that Expand yields into a run without an id or a start.
func (m *Matrix) Run(ctx context.Context) (plan.Run, error) { return plan.Run{}, nil }

// Schema is the whole schema with its comments, the options of every driver in this build included.
func Schema() string { return "" }

// Estimate is how long a run takes if nothing goes wrong, settle included.
func Estimate(run plan.Run) time.Duration { return 0 }
