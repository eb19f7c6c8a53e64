// Package compare compares runs, or the cells of one run along an axis. For each cell and value it computes the size of
// the difference and whether it exceeds noise. Within a run, repetitions are interleaved, and the repetition is the
// unit of replication. Between runs the unit is the run; its spread is known from earlier runs. All tests of a
// comparison are one family (docs/compare.md).
//
// It reads no file and uses no random numbers. Package report shows the result.
package compare

import (
	"fmt"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// Recorded is a run with its outcomes.
type Recorded struct {
	Mark     string // name in the comparison; empty: A, B, …
	Run      plan.Run
	Outcomes []plan.Outcome
}

// Options determine the compared values and the requirements on a difference. The zero value compares by cell id, with
// the defaults below.
type Options struct {
	Values []string // names as in tables; empty: Usual
	By     string   // an axis within one run; empty: runs are compared
	Base   string   // with By: the value with which others are compared; empty: the first in the matrix
	Match  []string // axes by which cells are matched; empty: by id, or with By by all other axes
	Effect float64  // minimum change that is reported, as a fraction; 0: DefaultEffect
	Alpha  float64  // maximum probability of any false finding; 0: DefaultAlpha
	// Spread returns the run-to-run spread of a value of a cell of the base, by the cell's id; nil: unknown. It is not
	// called with By.
	Spread func(cell, value string) plan.RunSpread
}

// Defaults of Options.
const (
	DefaultEffect = 0.05
	DefaultAlpha  = 0.05
)

// Usual returns the values that are compared by default. Values without any number are left out of the result.
func Usual() []string { return []string{"publish.rate", "consume.rate", "publish.p99", "e2e.p99"} }

// Comparison is the result of Compare. Side 0 is the base, with which every other side is compared.
type Comparison struct {
	Sides       []Side       `json:"sides"`
	By          string       `json:"by,omitempty"`
	Match       []string     `json:"match,omitempty"` // as in Options
	Effect      float64      `json:"effect"`
	Alpha       float64      `json:"alpha"`
	Tests       int          `json:"tests"`       // number of tests in the family
	Differences []Difference `json:"differences"` // of environment, subject and matrix
	Values      []Value      `json:"values"`
	Left        []Left       `json:"left"` // cells that are not compared
}

// Side is a run, or a part of a run, that is compared.
type Side struct {
	Mark        string    `json:"mark"` // "A", or the value of the axis
	Run         string    `json:"run"`
	Name        string    `json:"name"` // name of the matrix
	Started     time.Time `json:"started"`
	Cells       int       `json:"cells"`
	Repetitions int       `json:"repetitions"`
}

// Difference is a property that differs between sides, besides the values.
type Difference struct {
	Of     string   `json:"of"`   // "harness", "agents", "clocks", "matrix", "workload", or "broker NAME"
	What   string   `json:"what"` // "version", "setting disk_free_limit", "publishers.maxInFlight"
	Values []string `json:"values"`
}

// Left is a cell that is not compared, with the reason.
type Left struct {
	Cell   string   `json:"cell"`
	Sides  []string `json:"sides"` // sides without the cell
	Reason string   `json:"reason"`
}

// Value is one value in all cells.
type Value struct {
	Name   string         `json:"name"`
	Title  string         `json:"title"`
	Unit   plan.Unit      `json:"unit"`
	Better plan.Direction `json:"better,omitempty"`
	Rows   []Row          `json:"rows"`
	Means  []Mean         `json:"means,omitempty"` // one per side, except the base
}

// Row is a cell with its samples and changes.
type Row struct {
	Cell    string            `json:"cell,omitempty"` // id, if cells are matched by id
	At      []plan.Coordinate `json:"at"`
	Name    string            `json:"name"`
	Sides   []Sample          `json:"sides"`
	Changes []Change          `json:"changes"` // one per side, except the base
}

// Sample is a cell's value on one side.
type Sample struct {
	stats.Summary
	Numbers []float64   `json:"numbers"`           // of the repetitions, in their order
	Backlog int         `json:"backlog,omitempty"` // repetitions without a number because of a backlog: they rank worst
	Missing string      `json:"missing,omitempty"` // why other repetitions have no comparable number
	Bound   float64     `json:"bound,omitempty"`   // maximum plan.Value.Bound, in the unit of the value
	Flags   []plan.Flag `json:"flags,omitempty"`

	lowerBound bool // of a repetition without a comparable number, a lower bound is known
}

// OnlyLowerBound reports whether a repetition has only a lower bound of the value.
func (s Sample) OnlyLowerBound() bool { return s.lowerBound }

// Finding is the result of comparing two samples.
type Finding string

// The findings.
const (
	Better       Finding = "better"
	Worse        Finding = "worse"
	Higher       Finding = "higher" // for values without a direction of improvement
	Lower        Finding = "lower"
	NoDifference Finding = "no difference shown" // noise, or below the minimum effect
	Inconclusive Finding = "inconclusive"        // see Change.Why
)

// Findings returns all findings, the most important first.
func Findings() []Finding { return []Finding{Worse, Better, Higher, Lower, NoDifference, Inconclusive} }

// Change is the difference of a side from the base.
type Change struct {
	Finding Finding `json:"finding"`
	Why     string  `json:"why,omitempty"` // reason for Inconclusive
	// Ratio is that of the side to the base; nil if a number is not positive. Then Shift is used. Within a run it is
	// the median of the ratios of all pairs of repetitions. Between runs it is the ratio of the medians. Ratio and
	// Shift are not set if a repetition has no number.
	Ratio    *stats.Change `json:"ratio,omitempty"`
	Shift    stats.Change  `json:"shift"` // in the unit of the value
	P        float64       `json:"p"`
	Adjusted float64       `json:"adjusted"` // p after Holm's procedure
	// minimum number of repetitions per side (within a run) or of earlier runs for a decision
	Needed   int `json:"needed"`
	Earlier  int `json:"earlier"`  // runs from which the run-to-run spread is known
	Backlogs int `json:"backlogs"` // number of these with a backlog, if the change is to or from a backlog
	// between runs: standard error of the logarithm of Ratio, or of Shift if there is no Ratio
	Error float64 `json:"error"`

	sign   float64 // of the difference, by rank
	absent bool    // the side does not have the cell
}

// Mean is the geometric mean of a side over the cells.
type Mean struct {
	stats.Change
	Cells int `json:"cells"`
}

// Compare compares runs, of which the first is the base, or the cells of one run along an axis.
func Compare(runs []Recorded, o Options) (Comparison, error) {
	if o.Effect == 0 {
		o.Effect = DefaultEffect
	}
	if o.Alpha == 0 {
		o.Alpha = DefaultAlpha
	}
	sides, err := sidesOf(runs, o)
	if err != nil {
		return Comparison{}, err
	}
	infos, err := wanted(o.Values, sides)
	if err != nil {
		return Comparison{}, err
	}
	rows, left, err := match(sides, o)
	if err != nil {
		return Comparison{}, err
	}
	c := Comparison{By: o.By, Match: o.Match, Effect: o.Effect, Alpha: o.Alpha, Left: left}
	for _, s := range sides {
		c.Sides = append(c.Sides, s.describe())
	}
	c.Differences = differences(sides, rows, o.By)
	for _, info := range infos {
		if v := c.value(info, sides, rows, o.Spread); len(v.Rows) > 0 || len(o.Values) > 0 {
			c.Values = append(c.Values, v)
		}
	}
	c.judge()
	return c, nil
}

// wanted returns the descriptions of the requested values. Usual values without any number are left out later.
func wanted(names []string, sides []*side) ([]plan.ValueInfo, error) {
	var infos []plan.ValueInfo
	var problems []string
	chosen := names
	if len(chosen) == 0 {
		chosen = Usual()
	}
	for _, name := range chosen {
		info, known := plan.ValueNamed(name)
		group, _ := plan.SplitGroup(name)
		switch {
		case !known:
			problems = append(problems, fmt.Sprintf("unknown value %q: docs/values.md lists them", name))
		case group != "" && !anyGroup(sides, group):
			problems = append(problems, fmt.Sprintf("no cell has the group %q of the value %q", group, name))
		case !slices.ContainsFunc(infos, func(i plan.ValueInfo) bool { return i.Name == name }):
			infos = append(infos, info)
		}
	}
	return infos, joined("choose values", problems)
}

func anyGroup(sides []*side, name string) bool {
	for _, s := range sides {
		for _, c := range s.cells {
			if slices.ContainsFunc(c.cell.Workload.Groups, func(g plan.Group) bool { return g.Name == name }) {
				return true
			}
		}
	}
	return false
}
