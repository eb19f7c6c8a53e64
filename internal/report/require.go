package report

import (
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
)

// Result is the result of a rule.
type Result string

// The results. A result is inconclusive if the data cannot decide the rule.
const (
	Met          Result = "met"
	Violated     Result = "violated"
	Inconclusive Result = "inconclusive"
)

// Ruling is the result of one rule of one cell (plan.Cell.Require).
type Ruling struct {
	Cell     string // the name of the cell for people
	ID       string // the id of the cell
	Rule     string
	Result   Result
	Why      string // the reason; for a rule about a baseline that is met, its smallest detectable effects
	Accepted bool   // the rule passes if its result is inconclusive
}

// Failed reports whether the ruling makes the run fail.
func (r Ruling) Failed() bool {
	return r.Result == Violated || r.Result == Inconclusive && !r.Accepted
}

func (r Ruling) String() string {
	text := string(r.Result)
	if r.Result == Inconclusive && r.Accepted {
		text += " (accepted)"
	}
	text += ": " + r.Cell + ": " + r.Rule
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

// Rulings judges all rules of a run, in the order of the matrix. Rates and latencies are the medians over the valid
// repetitions, as in tables. Counts and flags are those of each repetition: one loss in three repetitions is a loss. A
// rule without data is inconclusive. All rules with the same text about a baseline are judged together (regressed).
func Rulings(run plan.Run, outcomes []plan.Outcome) []Ruling {
	var all []Ruling
	cells := newBuilder(run, outcomes).cells
	regressions := map[string]map[string]Ruling{} // by rule, by cell
	for _, c := range cells {
		for _, required := range c.cell.Require {
			var r Ruling
			switch rule, is, err := rules.ParseRegression(required.Text, run.Metrics); {
			case err != nil:
				r = Ruling{Result: Inconclusive, Why: err.Error()} // in a record of another version
			case is:
				if regressions[required.Text] == nil {
					regressions[required.Text] = regressed(run, required.Text, rule, cells)
				}
				r = regressions[required.Text][c.cell.ID]
			default:
				r = c.judge(required.Text)
			}
			r.Cell, r.ID, r.Rule, r.Accepted = c.name(), c.cell.ID, required.Text, required.Inconclusive == "pass"
			all = append(all, r)
		}
	}
	return all
}

// Failed counts the rulings that make a run fail, by result.
func Failed(all []Ruling) map[Result]int {
	n := map[Result]int{}
	for _, r := range all {
		if r.Failed() {
			n[r.Result]++
		}
	}
	return n
}

// ruling combines failures. Any certain failure makes the result violated, with the certain failures as the reason.
func ruling(all []rules.Failure) Ruling {
	r := Ruling{Result: Met}
	var certain, whys []string
	for _, f := range all {
		whys = append(whys, f.Why)
		if !f.Unknown {
			certain = append(certain, f.Why)
		}
	}
	switch {
	case certain != nil:
		r = Ruling{Result: Violated, Why: strings.Join(certain, "; ")}
	case whys != nil:
		r = Ruling{Result: Inconclusive, Why: strings.Join(whys, "; ")}
	}
	return r
}
