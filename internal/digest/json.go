package digest

import (
	"encoding/json"
	"io"

	"lockstep/internal/compare"
	"lockstep/internal/plan"
)

// mostJSON is how long the digest for programs gets, in bytes: half of what a schedule keeps of all its comparison hooks together.
const mostJSON = 32 << 10

// told is the digest for programs. Long lists are cut; More counts what they lack.
type told struct {
	Title string   `json:"title"`
	Lines []string `json:"lines,omitempty"` // what people are told, in the order in which they want to know it
	Digest
	Against *against       `json:"against,omitempty"`
	More    map[string]int `json:"more,omitempty"` // by the name of the list; of "against.found" and "against.differences", too
}

// against is a comparison with a baseline without its repetitions, which ctl compare --format json has.
type against struct {
	Effect      float64              `json:"effect"`
	Alpha       float64              `json:"alpha"`
	Tests       int                  `json:"tests"`
	Findings    map[string]int       `json:"findings"` // how many there are of each
	Found       []found              `json:"found,omitempty"`
	Differences []compare.Difference `json:"differences,omitempty"`
}

// found is a change that is named.
type found struct {
	Finding compare.Finding `json:"finding"`
	Cell    string          `json:"cell"`
	ID      string          `json:"id"`
	Value   string          `json:"value"`
	Unit    plan.Unit       `json:"unit"`
	Before  float64         `json:"before"` // median
	After   float64         `json:"after"`
	Change  *float64        `json:"change,omitempty"` // in parts: the median of the ratios of all pairs, less one; none from zero or to it
	P       float64         `json:"p"`
}

// JSON writes the digest for programs: in one line of at most 32 KiB, whatever the run, so that it can be kept with the run.
func (d Digest) JSON(w io.Writer) error {
	whole := told{Title: d.Title(), Lines: d.lines(), Digest: d}
	if d.Against != nil {
		whole.Against = newAgainst(*d.Against)
	}
	for most := 256; ; most /= 2 {
		text, err := json.Marshal(whole.cut(most))
		if err != nil {
			return err
		}
		if len(text) < mostJSON || most == 0 {
			_, err = w.Write(append(text, '\n'))
			return err
		}
	}
}

// lines are those of all sections, each with the section's name.
func (d Digest) lines() (all []string) {
	for _, s := range d.sections() {
		for _, l := range s.Lines {
			all = append(all, s.Title+": "+l.Text)
		}
	}
	return all
}

func newAgainst(c compare.Comparison) *against {
	a := &against{Effect: c.Effect, Alpha: c.Alpha, Tests: c.Tests, Differences: c.Differences, Findings: map[string]int{}}
	for f, n := range c.Found() {
		a.Findings[string(f)] = n
	}
	for _, f := range compare.Findings() {
		for _, v := range c.Values {
			for _, r := range v.Rows {
				if x := r.Changes[0]; x.Finding == f && f != compare.NoDifference && f != compare.Inconclusive {
					a.Found = append(a.Found, newFound(v, r, x))
				}
			}
		}
	}
	return a
}

func newFound(v compare.Value, r compare.Row, x compare.Change) found {
	f := found{Finding: x.Finding, Cell: r.Name, ID: r.Cell, Value: v.Name, Unit: v.Unit, Before: r.Sides[0].Median, After: r.Sides[1].Median, P: x.Adjusted}
	if x.Ratio != nil {
		part := x.Ratio.Estimate - 1
		f.Change = &part
	}
	return f
}

// cut leaves at most so many entries in each list.
func (t told) cut(most int) told {
	t.More = map[string]int{}
	t.Lines = first(t.Lines, most, t.More, "lines")
	t.Problems = first(t.Problems, most, t.More, "problems")
	t.Rules = first(t.Rules, most, t.More, "rules")
	t.Statuses = first(t.Statuses, most, t.More, "statuses")
	t.Shifts = first(t.Shifts, most, t.More, "shifts")
	t.New = first(t.New, most, t.More, "new")
	t.Subject = first(t.Subject, most, t.More, "subject")
	if t.Against != nil {
		a := *t.Against
		a.Found = first(a.Found, most, t.More, "against.found")
		a.Differences = first(a.Differences, most, t.More, "against.differences")
		t.Against = &a
	}
	return t
}

func first[T any](all []T, most int, more map[string]int, name string) []T {
	if len(all) <= most {
		return all
	}
	more[name] = len(all) - most
	return all[:most]
}
