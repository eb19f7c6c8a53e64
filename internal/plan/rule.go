package plan

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rule is a requirement on a cell's values: a condition (rules.ParseCondition), or a comparison with a baseline
// (rules.ParseRegression).
type Rule struct {
	Text string `json:"rule"`
	// "pass": an inconclusive result passes; empty: it fails
	Inconclusive string `json:"inconclusive,omitempty"`
}

// Regression is a rule that compares a cell with a baseline: "publish.rate no worse than baseline by 5% at 95%".
type Regression struct {
	Values     []string // names as in tables; empty: the default values of comparisons
	Baseline   string   // name; empty: the baseline of the run's matrix
	Effect     float64  // fraction; a smaller change does not count
	Confidence float64
}

// StopRule ends the repetitions of a cell when the confidence interval of a value is narrow enough. Run.Repeat is then
// the maximum number of repetitions. Package sampling evaluates it.
type StopRule struct {
	Rule       string  `json:"rule"`            // as written in the matrix
	Value      string  `json:"value,omitempty"` // name as in tables; empty: the default of Of
	Within     float64 `json:"within"`          // maximum half-width of the interval, as a fraction of the median
	Confidence float64 `json:"confidence"`      // confidence of the interval
}

// Of returns the name of the value that the rule applies to in a workload.
func (u StopRule) Of(w Workload) string {
	switch {
	case u.Value != "":
		return u.Value
	case w.Search != nil:
		return "capacity"
	}
	return "publish.rate"
}

// DefaultConfidence is the confidence of intervals and comparisons in rules without one.
const DefaultConfidence = 0.95

// Base holds the numbers of the run with which another run is compared. It is stored in the plan, so that a baseline
// that is set later does not affect the run.
type Base struct {
	Name    string     `json:"name"`          // name of the baseline
	Why     string     `json:"why,omitempty"` // why there is no baseline, and how to set one
	Run     string     `json:"run,omitempty"`
	Started time.Time  `json:"started,omitzero"`
	Cells   []BaseCell `json:"cells,omitempty"`
	// Earlier is the number of earlier runs of the matrix, from the baseline on, in the control plane. Available is the
	// number of those whose outcomes the leader had. Both are 0 if the baseline was read from a directory.
	Earlier   int `json:"earlier,omitempty"`
	Available int `json:"available,omitempty"`
}

// BaseCell is a cell of the baseline's run: the values that rules need, by their names in tables, and their run-to-run
// spread.
type BaseCell struct {
	ID          string               `json:"id"`
	Hosts       []string             `json:"hosts"`       // of the agents, as Outcome.Hosts returns them
	Repetitions []map[string]Value   `json:"repetitions"` // NA is the verdict if the repetition is not valid
	Spreads     map[string]RunSpread `json:"spreads,omitempty"`
}

// MinEarlierRuns is the minimum number of earlier runs for a run-to-run spread.
const MinEarlierRuns = 5

// RunSpread is the variation of the medians of a cell's value over earlier runs with the same broker version and hosts.
type RunSpread struct {
	Runs int `json:"runs"` // runs whose median is a number
	// runs whose median repetition had a backlog; the other fields do not include them
	Backlogs    int      `json:"backlogs,omitempty"`
	Repetitions float64  `json:"repetitions"`        // per run, on average
	Deviation   float64  `json:"deviation"`          // sample standard deviation of the medians, in the value's unit
	Relative    *float64 `json:"relative,omitempty"` // the same of their logarithms; nil: a median is not positive
}

// CheckBaselineName returns an error for a name that rules cannot contain.
func CheckBaselineName(name string) error {
	if !IsName(name, 64) {
		return fmt.Errorf("baseline %q: no rule could name it; give up to 64 letters, digits, \".\", \"_\" and \"-\", "+
			"the first a letter or digit", name)
	}
	return nil
}

// NoBaseline returns the message for a missing baseline, with the remedy. place is "in …", or empty if unknown.
func NoBaseline(name, place string) string {
	return fmt.Sprintf("there is no baseline %s: ctl history baseline set RUN makes a run the baseline of its matrix, before the next one begins", strings.TrimSpace(strconv.Quote(name)+" "+place))
}
