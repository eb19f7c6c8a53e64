// Package compare finds what differs between runs, or between the cells of one run along an axis: cell by cell and
// value by value, how much, and whether that is more than noise. Repetitions of one run are interleaved: between cells
// of one run the repetition is the unit of replication. Between runs it is the run, whose spread is known from earlier
// runs. All tests of a comparison are one family (docs/compare.md). It reads no file and draws nothing; package report
// shows the result.
package compare

import (
	"fmt"
	"slices"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// Recorded is a run with what came of it.
type Recorded struct {
	Mark     string // in the comparison; empty: A, B, …
	Run      plan.Run
	Outcomes []plan.Outcome
}

// Options say what is compared, and how sure and large a difference has to be. The zero value compares by cell id, with
// the defaults below.
type Options struct {
	Values []string // names as in tables; none: Usual
	By     string   // an axis inside of one run; empty: the runs are compared
	Base   string   // of By: the value that the others are compared with; empty: the first of the matrix
	Match  []string // axes by which cells belong together; none: their ids or, by an axis, all other axes
	Effect float64  // least change that is named, as a part; 0: DefaultEffect
	Alpha  float64  // greatest probability of naming anything that is none; 0: DefaultAlpha
	// Spread is the run-to-run spread of a value of a cell of the base, by the cell's id; nil: unknown. It is not
	// called with By.
	Spread func(cell, value string) plan.RunSpread
}

// Defaults of Options.
const (
	DefaultEffect = 0.05
	DefaultAlpha  = 0.05
)

// Usual are the values that are compared unless others are asked for: those of them that have a number anywhere.
func Usual() []string { return []string{"publish.rate", "consume.rate", "publish.p99", "e2e.p99"} }

// Comparison is what was found. Side 0 is the base, with which each other one is compared.
type Comparison struct {
	Sides       []Side       `json:"sides"`
	By          string       `json:"by,omitempty"`
	Match       []string     `json:"match,omitempty"` // as asked for
	Effect      float64      `json:"effect"`
	Alpha       float64      `json:"alpha"`
	Tests       int          `json:"tests"`       // size of the family
	Differences []Difference `json:"differences"` // of environment, subject and matrix
	Values      []Value      `json:"values"`
	Left        []Left       `json:"left"` // cells that are in no number
}

// Side is one of what is compared.
type Side struct {
	Mark        string    `json:"mark"` // "A", or the value of the axis
	Run         string    `json:"run"`
	Name        string    `json:"name"` // the matrix's
	Started     time.Time `json:"started"`
	Cells       int       `json:"cells"`
	Repetitions int       `json:"repetitions"`
}

// Difference is something besides the broker's speed that is not the same on all sides.
type Difference struct {
	Of     string   `json:"of"`   // "harness", "agents", "clocks", "matrix", "workload", or "broker NAME"
	What   string   `json:"what"` // "version", "setting disk_free_limit", "publishers.maxInFlight"
	Values []string `json:"values"`
}

// Left is a cell that is not compared, and why.
type Left struct {
	Cell   string   `json:"cell"`
	Sides  []string `json:"sides"` // in which it is missing
	Reason string   `json:"reason"`
}

// Value is one value over all cells.
type Value struct {
	Name   string         `json:"name"`
	Title  string         `json:"title"`
	Unit   plan.Unit      `json:"unit"`
	Better plan.Direction `json:"better,omitempty"`
	Rows   []Row          `json:"rows"`
	Means  []Mean         `json:"means,omitempty"` // for each side but the base
}

// Row is a cell.
type Row struct {
	Cell    string            `json:"cell,omitempty"` // id, where cells are matched by it
	At      []plan.Coordinate `json:"at"`
	Name    string            `json:"name"`
	Sides   []Sample          `json:"sides"`
	Changes []Change          `json:"changes"` // for each side but the base
}

// Sample is a cell's value on one side.
type Sample struct {
	stats.Summary
	Numbers []float64   `json:"numbers"`           // of the repetitions, in their order
	Backlog int         `json:"backlog,omitempty"` // repetitions without a number, as a backlog grew: they rank worst
	Missing string      `json:"missing,omitempty"` // why other repetitions have no number that can be compared
	Bound   float64     `json:"bound,omitempty"`   // the largest plan.Value.Bound, in the value's unit
	Flags   []plan.Flag `json:"flags,omitempty"`
}

// Finding is the result of comparing two samples.
type Finding string

// The findings.
const (
	Better       Finding = "better"
	Worse        Finding = "worse"
	Higher       Finding = "higher" // of values that are neither better nor worse
	Lower        Finding = "lower"
	NoDifference Finding = "no difference shown" // noise, or less than the least effect
	Inconclusive Finding = "inconclusive"        // see Change.Why
)

// Findings lists all findings, in the order in which they are of interest.
func Findings() []Finding { return []Finding{Worse, Better, Higher, Lower, NoDifference, Inconclusive} }

// Change is how a side differs from the base.
type Change struct {
	Finding Finding `json:"finding"`
	Why     string  `json:"why,omitempty"` // of Inconclusive
	// Ratio is of the side to the base, nil where a number is not positive; then Shift has it. Inside of one run it is
	// the median of the ratios of all pairs of repetitions, between runs the ratio of the medians. Neither is known if
	// a repetition has no number.
	Ratio    *stats.Change `json:"ratio,omitempty"`
	Shift    stats.Change  `json:"shift"` // in the value's unit
	P        float64       `json:"p"`
	Adjusted float64       `json:"adjusted"` // p after Holm
	// repetitions on either side inside of one run, or earlier runs, without which nothing can be decided
	Needed   int `json:"needed"`
	Earlier  int `json:"earlier"`  // runs from which the run-to-run spread is known
	Backlogs int `json:"backlogs"` // of these with a backlog, if that is what has changed
	// between runs: standard error of the logarithm of Ratio, or of Shift where there is none
	Error float64 `json:"error"`

	sign   float64 // of the difference, by rank
	absent bool    // the side does not have the cell
}

// Mean is a side's geometric mean over the cells.
type Mean struct {
	stats.Change
	Cells int `json:"cells"`
}

// Compare compares runs, the first of which is the base, or the cells of one run along an axis.
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

// wanted describes the values that are asked for. Of the usual ones those that are never measured are left out later.
func wanted(names []string, sides []*side) ([]plan.ValueInfo, error) {
	var infos []plan.ValueInfo
	var faults []string
	asked := names
	if len(asked) == 0 {
		asked = Usual()
	}
	for _, name := range asked {
		info, known := plan.ValueNamed(name)
		group, _ := plan.SplitGroup(name)
		switch {
		case !known:
			faults = append(faults, fmt.Sprintf("there is no value %q: docs/values.md lists them", name))
		case group != "" && !anyGroup(sides, group):
			faults = append(faults, fmt.Sprintf("no cell has the group %q of the value %q", group, name))
		case !slices.ContainsFunc(infos, func(i plan.ValueInfo) bool { return i.Name == name }):
			infos = append(infos, info)
		}
	}
	return infos, joined("choose values", faults)
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
