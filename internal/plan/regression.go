package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Regression is a rule that compares a cell with a baseline: "publish.rate no worse than baseline by 5% at 95%".
type Regression struct {
	Values     []string // as tables name them; none: those that comparisons are usually of
	Baseline   string   // its name; empty: that of the run's matrix
	Effect     float64  // what is less, as a part, is no change
	Confidence float64
}

const regressionForm = `write it as "no worse than baseline by 5%" or "publish.rate, publish.p99 no worse than baseline NAME by 5% at 95%"`

var regressionPattern = regexp.MustCompile(`^\s*(?:(\S+(?:\s*,\s*[^\s,]+)*)\s+)?no\s+worse\s+than\s+baseline(?:\s+(\S+))?\s+by\s+(\S+?)\s*%(?:\s+at\s+(\S+?)\s*%)?\s*$`)

// ParseRegression reads such a rule. is reports whether the text means to be one, and no condition; the error says all
// that is wrong with it.
func ParseRegression(text string) (r Regression, is bool, err error) {
	words := strings.Fields(text)
	if !slices.Contains(words, "worse") && !slices.Contains(words, "baseline") {
		return r, false, nil
	}
	m := regressionPattern.FindStringSubmatch(text)
	if m == nil {
		return r, true, errors.New("it does not say what to compare with a baseline; " + regressionForm)
	}
	r = Regression{Baseline: m[2], Confidence: DefaultConfidence}
	var faults []string
	for name := range strings.SplitSeq(m[1], ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		info, _ := ValueNamed(name)
		switch why := notAValue(name); {
		case why != "":
			faults = append(faults, why)
		case info.Better == NeitherBetter:
			faults = append(faults,
				name+" is neither better nor worse when it changes; take another value, or a condition such as "+name+
					" < …")
		}
		r.Values = append(r.Values, name)
	}
	var why string
	if r.Effect, why = percentage(m[3], 0, 100); why != "" {
		faults = append(faults, why+"; give by how much it may be worse, as 5%")
	}
	if m[4] != "" {
		if r.Confidence, why = percentage(m[4], 50, 100); why != "" {
			faults = append(faults, why+"; give a confidence, as 95%")
		}
	}
	if faults != nil {
		return r, true, errors.New(strings.Join(faults, "; "))
	}
	return r, true, nil
}

// Base is the numbers of a run that another is compared with by its rules. It is a part of the plan: what was the
// baseline when the run began stays it.
type Base struct {
	Name    string     `json:"name"`          // of the baseline
	Why     string     `json:"why,omitempty"` // there is none, and what to do about it
	Run     string     `json:"run,omitempty"`
	Started time.Time  `json:"started,omitzero"`
	Cells   []BaseCell `json:"cells,omitempty"`
	// Earlier is the number of earlier runs of the matrix from the baseline on that the control plane knows, and
	// Available the number of those whose outcomes its leader had. Both are 0 if the numbers are of a folder.
	Earlier   int `json:"earlier,omitempty"`
	Available int `json:"available,omitempty"`
}

// BaseCell is a cell of such a run: the values that rules ask for, by the names that tables give them, with their
// run-to-run spread when the run began.
type BaseCell struct {
	ID          string               `json:"id"`
	Hosts       []string             `json:"hosts"`       // of the agents, as Outcome.Hosts names them
	Repetitions []map[string]Value   `json:"repetitions"` // NA is the verdict where that is not valid
	Spreads     map[string]RunSpread `json:"spreads,omitempty"`
}

// MinEarlierRuns is the number of earlier runs from which the run-to-run spread of a value is known.
const MinEarlierRuns = 5

// RunSpread is how much the medians of a value of a cell differed in earlier runs with one broker version and the same
// hosts.
type RunSpread struct {
	Runs int `json:"runs"` // whose median is a number
	// whose median repetition had a backlog; they are in none of the other fields
	Backlogs    int      `json:"backlogs,omitempty"`
	Repetitions float64  `json:"repetitions"`        // per run, on average
	Deviation   float64  `json:"deviation"`          // sample standard deviation of the medians, in the value's unit
	Relative    *float64 `json:"relative,omitempty"` // the same of their logarithms; nil: a median is not positive
}

// LowerBound is why a value cannot be compared of which only that is known.
const LowerBound = "only a lower bound"

// Incomparable is why a value cannot be compared with others: it has no number, only a bound, or a flag that doubts it.
// Empty: it can be compared.
func (v Value) Incomparable() string {
	switch {
	case v.NA != "":
		return "no number: " + v.NA
	case v.Over > 0:
		return LowerBound
	}
	for _, f := range v.Flags {
		if f.Incomparable() {
			return string(f)
		}
	}
	return ""
}

// Regressions are the rules of a run that need a baseline, by its name.
func (r Run) Regressions() map[string][]Regression {
	all := map[string][]Regression{}
	seen := map[string]bool{}
	for _, c := range r.Cells {
		for _, required := range c.Require {
			if seen[required.Text] {
				continue
			}
			seen[required.Text] = true
			if rule, is, err := ParseRegression(required.Text); is && err == nil {
				name := r.BaselineOf(rule)
				all[name] = append(all[name], rule)
			}
		}
	}
	return all
}

var baselinePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckBaselineName returns an error for a name that no rule could write after "baseline".
func CheckBaselineName(name string) error {
	if !baselinePattern.MatchString(name) {
		return fmt.Errorf("baseline %q: no rule could name it; give up to 64 letters, digits, \".\", \"_\" and \"-\", "+
			"the first a letter or digit", name)
	}
	return nil
}

// BaselineOf is the name of the baseline of a rule.
func (r Run) BaselineOf(rule Regression) string {
	if rule.Baseline != "" {
		return rule.Baseline
	}
	return r.Name
}

// BaseOf is what the run has of a baseline.
func (r Run) BaseOf(name string) Base {
	for _, b := range r.Bases {
		if b.Name == name {
			return b
		}
	}
	return Base{Name: name, Why: NoBaseline(name, "")}
}

// NoBaseline says that there is none of a name in a place, and what to do about it. The place is "in …", or empty if it
// is not known.
func NoBaseline(name, place string) string {
	return fmt.Sprintf("there is no baseline %s: ctl baseline set RUN makes a run the baseline of its matrix, before the next one begins", strings.TrimSpace(strconv.Quote(name)+" "+place))
}
