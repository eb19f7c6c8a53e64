// Package compare compares runs, or the cells of one run along an axis. For each cell and value it computes the size of
// the difference and whether it exceeds noise. Within a run, repetitions are interleaved, and the repetition is the
// unit of replication. Between runs the unit is the run; its spread is known from earlier runs. All tests of a
// comparison are one family (docs/concepts/statistics.md).
//
// It reads no file and uses no random numbers. Package report shows the result.
package compare

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/sampling"
	"example.org/lockstep/lockstep/internal/stats"
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
func Usual() []string {
	return []string{"publish.rate", "consume.rate", "publish.p99", "publish.intended.p99", "e2e.p99"}
}

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

// Sample is a cell's value on one side. Repetitions with a backlog affect only the median of Summary (see HasBacklog).
type Sample struct {
	stats.Summary
	Numbers []float64   `json:"numbers"`           // of the repetitions, in their order
	Backlog int         `json:"backlog,omitempty"` // repetitions without a number because of a backlog: they rank worst
	Missing string      `json:"missing,omitempty"` // why other repetitions have no comparable number
	Bound   float64     `json:"bound,omitempty"`   // maximum plan.Value.Bound, in the unit of the value
	Flags   []plan.Flag `json:"flags,omitempty"`

	OnlyLowerBound bool `json:"-"` // of a repetition without a comparable number, a lower bound is known
}

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
	o.Effect, o.Alpha = cmp.Or(o.Effect, DefaultEffect), cmp.Or(o.Alpha, DefaultAlpha)
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
		d := Side{Mark: s.mark, Run: s.run.ID, Name: s.run.Name, Started: s.run.Started, Cells: len(s.cells)}
		for _, x := range s.cells {
			d.Repetitions = max(d.Repetitions, x.repeat)
		}
		c.Sides = append(c.Sides, d)
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
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("choose values: "+format, args...))
	}
	if len(names) == 0 {
		names = Usual()
	}
	var metrics plan.Metrics
	for _, s := range sides {
		metrics = metrics.Join(s.run.Metrics...)
	}
	for _, name := range names {
		info, known := metrics.ValueNamed(name)
		group, _ := plan.SplitGroup(name)
		other := slices.IndexFunc(sides, func(s *side) bool {
			its, has := s.run.Metrics.ValueNamed(name)
			return has && its.Unit != info.Unit
		})
		switch {
		case other >= 0:
			problem("the value %q has another unit than %q in %s: compare runs whose drivers declare the same unit", name,
				info.Unit, sides[other].mark)
		case !known:
			problem("unknown value %q: docs/reference/values.md lists them", name)
		case group != "" && !slices.ContainsFunc(sides, func(s *side) bool {
			return slices.ContainsFunc(s.cells, func(c *cell) bool {
				return slices.ContainsFunc(c.cell.Workload.Groups, func(g plan.Group) bool { return g.Name == group })
			})
		}):
			problem("no cell has the group %q of the value %q", group, name)
		case !slices.ContainsFunc(infos, func(i plan.ValueInfo) bool { return i.Name == name }):
			infos = append(infos, info)
		}
	}
	return infos, errors.Join(problems...)
}

// value compares one value in all cells that the base and another side have.
func (c *Comparison) value(info plan.ValueInfo, sides []*side, rows []group,
	spread func(cell, value string) plan.RunSpread) Value {
	v := Value{Name: info.Name, Title: info.Title, Unit: info.Unit, Better: info.Better}
	for _, g := range rows {
		row := Row{At: g.at, Name: g.name()}
		if len(c.Match) == 0 && c.By == "" {
			row.Cell = g.key
		}
		numbers, lacking := 0, false
		for _, x := range g.cells {
			s, never := sample(x, info, 1-c.Alpha)
			row.Sides = append(row.Sides, s)
			numbers, lacking = numbers+s.size(), lacking || never
		}
		if numbers == 0 && lacking { // the cell cannot have the value: not reported
			continue
		}
		for i, x := range g.cells[1:] {
			if x == nil {
				row.Changes = append(row.Changes, Change{absent: true})
				continue
			}
			a, b := row.Sides[0], row.Sides[i+1]
			whys := append(a.flags(sides[0].mark, b, info.Better), b.flags(sides[i+1].mark, a, info.Better)...)
			var change Change
			if c.By != "" {
				change = withinRun(a, b, info.Better, 1-c.Alpha)
			} else {
				var known plan.RunSpread
				if spread != nil {
					known = spread(g.cells[0].cell.ID, info.Name)
				}
				change = betweenRuns(a, b, info.Better, known, 1-c.Alpha)
				if then, now := g.cells[0].hosts(), x.hosts(); !slices.Equal(then, now) && then != nil && now != nil {
					whys = append(whys, fmt.Sprintf("measured from other hosts: %s and %s", strings.Join(then, ", "),
						strings.Join(now, ", ")))
				}
				if change.Earlier < plan.MinEarlierRuns {
					whys = append(whys,
						fmt.Sprintf("the run-to-run spread is unknown: %d of %d earlier runs", change.Earlier,
							plan.MinEarlierRuns))
				}
			}
			change.Why = strings.Join(whys, "; ")
			row.Changes = append(row.Changes, change)
		}
		v.Rows = append(v.Rows, row)
	}
	for i := range sides[1:] {
		v.Means = append(v.Means, c.mean(v.Rows, i+1))
	}
	return v
}

// missing is a reason for which repetitions have no comparable number.
type missing struct {
	why      string
	noNumber bool // the repetition is valid, and cannot have the value
}

// sample returns a value's numbers on one side. lacking is true if all repetitions are valid and have no number for the
// same reason. The cell then cannot have the value.
func sample(x *cell, info plan.ValueInfo, confidence float64) (s Sample, lacking bool) {
	if x == nil {
		return s, false
	}
	absent, repeat := map[missing]int{}, max(x.repeat, len(x.outcomes))
	for _, o := range x.outcomes {
		got, known := o.Value(info.Name)
		s.Flags = append(s.Flags, got.Flags...)
		switch {
		case o.Verdict != plan.Valid:
			why := o.Verdict.Word()
			if len(o.Reasons) > 0 {
				why += ": " + strings.Join(o.Reasons, "; ")
			}
			absent[missing{why: why}]++
		case !known:
			absent[missing{why: plan.Value{NA: "not in the record"}.Incomparable(), noNumber: true}]++
		case got.NA == string(plan.Backlog):
			s.Backlog++
		case got.NA != "" || got.Over > 0:
			s.OnlyLowerBound = s.OnlyLowerBound || got.NA == ""
			absent[missing{why: got.Incomparable(), noNumber: got.NA != ""}]++
		default:
			s.Numbers = append(s.Numbers, got.Number)
			s.Bound = max(s.Bound, got.Bound)
		}
	}
	lacking = len(absent) == 1 && s.Backlog == 0 && len(s.Numbers) == 0
	if n := repeat - len(x.outcomes); n > 0 {
		absent[missing{why: "not run"}] = n
	}
	var whys []string
	for m, n := range absent {
		lacking = lacking && m.noNumber
		whys = append(whys, fmt.Sprintf("%d of %d repetitions %s", n, repeat, m.why))
	}
	slices.Sort(whys)
	s.Missing = strings.Join(whys, "; ")
	s.Flags = slices.Compact(slices.Sorted(slices.Values(s.Flags)))
	if s.Summary = stats.Summarize(s.Numbers, confidence); s.Backlog > 0 && !s.HasBacklog() { // as in the tables of a run
		s.Median, s.Interval = stats.Median(s.ranked(info.Better)), stats.Interval{}
	}
	return s, lacking
}

// flags returns the reasons for which a side is inconclusive, whatever its numbers are. A flag that leaves numbers
// comparable is a reason only if the other side does not have it.
func (s Sample) flags(mark string, other Sample, better plan.Direction) (whys []string) {
	if s.Missing != "" {
		whys = append(whys, s.Missing)
	}
	if s.Backlog > 0 && better == plan.NeitherBetter {
		whys = append(whys, s.backlog())
	}
	for _, f := range s.Flags {
		if f.Incomparable() || f != plan.Backlog && !slices.Contains(other.Flags, f) {
			whys = append(whys, string(f))
		}
	}
	if whys == nil {
		return nil
	}
	return []string{mark + ": " + strings.Join(whys, ", ")}
}

func (s Sample) backlog() string {
	return fmt.Sprintf("backlog in %d of %d repetitions", s.Backlog, s.N+s.Backlog)
}

// HasBacklog reports whether the median repetition has a backlog.
func (s Sample) HasBacklog() bool { return s.Backlog > 0 && s.Backlog >= s.N }

// ranked returns the numbers, and the worst possible number for each backlog.
func (s Sample) ranked(better plan.Direction) []float64 {
	return append(slices.Clone(s.Numbers), slices.Repeat([]float64{better.Worst()}, s.Backlog)...)
}

// withinRun compares interleaved repetitions with the Mann–Whitney test and the corresponding Hodges–Lehmann estimate.
func withinRun(a, b Sample, better plan.Direction, confidence float64) (c Change) {
	if a.Missing != "" || b.Missing != "" {
		return c
	}
	from, to := a.ranked(better), b.ranked(better)
	test := stats.MannWhitney(from, to)
	c.P, c.sign = test.P, float64(len(from)*len(to))/2-test.U
	if a.Backlog+b.Backlog > 0 {
		return c
	}
	c.Shift, _ = stats.Difference(from, to, confidence)
	if r, ok := stats.Ratio(from, to, confidence); ok {
		c.Ratio = &r
	}
	return c
}

// betweenRuns compares the medians of two runs. The run is a random effect (Kalibera and Jones 2013, Rigorous
// Benchmarking in Reasonable Time). The logarithms of the medians of m earlier runs have the standard deviation s. The
// difference of two runs has the standard error s·√(f₁ + f₂). Divided by it, the difference has Student's t
// distribution with m − 1 degrees of freedom. f is 1, or r/n for a side with fewer repetitions (n) than earlier runs
// (r, on average). r/n is the maximum factor by which fewer repetitions can increase that part of the variance.
//
// A change to or from a backlog is reported without a test (p = 0) if no earlier run was like the other side. Alpha
// does not bound such reports. If k of m earlier runs were, all m + 1 runs are exchangeable. Then p is the fraction
// like it, (k + 1) / (m + 1).
func betweenRuns(a, b Sample, better plan.Direction, spread plan.RunSpread, confidence float64) (c Change) {
	c.P, c.Earlier, c.Needed = 1, spread.Runs, plan.MinEarlierRuns
	known := spread.Runs >= plan.MinEarlierRuns
	if a.HasBacklog() != b.HasBacklog() {
		c.sign, c.Backlogs, c.Earlier = better.Worst(), spread.Backlogs, spread.Runs+spread.Backlogs
		alike := spread.Backlogs
		if a.HasBacklog() {
			c.sign, alike = -c.sign, spread.Runs
		}
		if c.P = 0; alike > 0 {
			c.P = float64(alike+1) / float64(c.Earlier+1)
		}
	}
	if a.Missing != "" || b.Missing != "" || a.HasBacklog() || b.HasBacklog() {
		return c
	}
	freedom, wider := float64(spread.Runs-1), math.Sqrt(max(1, spread.Repetitions/float64(a.N+a.Backlog))+
		max(1, spread.Repetitions/float64(b.N+b.Backlog)))
	difference := func(d, deviation float64) stats.Interval {
		i := stats.Interval{Low: d, High: d}
		if known {
			c.Error = deviation * wider
			half := stats.StudentQuantile((1+confidence)/2, freedom) * c.Error
			i = stats.Interval{Low: d - half, High: d + half, Confidence: confidence}
			if d != 0 {
				c.P = 2 * stats.StudentT(-math.Abs(d)/c.Error, freedom)
			}
		}
		return i
	}
	then, now := a.Median, b.Median
	c.sign, c.Shift = now-then, stats.Change{Estimate: now - then, Interval: difference(now-then, spread.Deviation)}
	if then > 0 && now > 0 && (spread.Relative != nil || !known) {
		var deviation float64
		if known {
			deviation = *spread.Relative
		}
		i := difference(math.Log(now/then), deviation)
		c.Ratio = &stats.Change{Estimate: now / then,
			Interval: stats.Interval{Low: math.Exp(i.Low), High: math.Exp(i.High), Confidence: i.Confidence}}
	}
	return c
}

// mean returns the geometric mean over the comparable cells. Between runs, cells of one run may change together. Half
// the interval is then the mean of the cells' half intervals, in logarithms.
func (c *Comparison) mean(rows []Row, side int) (m Mean) {
	var pairs []stats.Pair
	var sum, half float64
	known := true
	for _, r := range rows {
		if x := r.Changes[side-1]; x.Ratio != nil && x.Why == "" {
			pairs = append(pairs, stats.Pair{A: r.Sides[0].Numbers, B: r.Sides[side].Numbers})
			sum, half = sum+math.Log(x.Ratio.Estimate), half+math.Log(x.Ratio.Interval.High/x.Ratio.Estimate)
			known = known && x.Ratio.Interval.Holds(1-c.Alpha)
		}
	}
	if c.By != "" {
		m.Change, m.Cells, _ = stats.GeometricRatio(pairs, 1-c.Alpha)
		return m
	}
	if m.Cells = len(pairs); m.Cells > 0 {
		n := float64(m.Cells)
		m.Estimate = math.Exp(sum / n)
		if known {
			m.Interval = stats.Interval{Low: math.Exp((sum - half) / n), High: math.Exp((sum + half) / n),
				Confidence: 1 - c.Alpha}
		}
	}
	return m
}

// changes calls f with every change of the comparison, its row, and its index in the row.
func (c *Comparison) changes(f func(v *Value, x *Change, r *Row, i int)) {
	for v := range c.Values {
		for r := range c.Values[v].Rows {
			row := &c.Values[v].Rows[r]
			for i := range row.Changes {
				f(&c.Values[v], &row.Changes[i], row, i)
			}
		}
	}
}

// judge adjusts the p-values of all tests as one family, and sets the finding of each change. Changes that are
// inconclusive whatever their numbers are do not belong to the family. Nor do changes with too few repetitions to be
// significant. Neither can be a false finding.
func (c *Comparison) judge() {
	var ps []float64
	var family []*Change
	possible := 0
	c.changes(func(_ *Value, x *Change, r *Row, i int) {
		x.Adjusted = 1
		if x.Why != "" || x.absent {
			return
		}
		possible++
		if c.By == "" || stats.SmallestP(r.Sides[0].size(), r.Sides[i+1].size()) <= c.Alpha {
			ps, family = append(ps, x.P), append(family, x)
		}
	})
	c.Tests = len(ps)
	for i, p := range stats.Holm(ps) {
		family[i].Adjusted = p
	}
	needed := stats.MinRepetitions(c.Alpha, cmp.Or(len(ps), possible))
	c.changes(func(v *Value, x *Change, r *Row, i int) {
		if x.absent {
			return
		}
		a, b := r.Sides[0], r.Sides[i+1]
		if c.By != "" {
			x.Needed = needed
			if smallest := stats.SmallestP(a.size(), b.size()); x.Why == "" && x.Adjusted > c.Alpha &&
				smallest*float64(max(1, c.Tests)) > c.Alpha {
				x.Why = fmt.Sprintf("too few repetitions: %d, and %d are needed", min(a.size(), b.size()), needed)
			}
		}
		x.Finding, x.Why = x.find(c, a, b, v.Better)
	})
}

// size returns the number of repetitions that have a rank.
func (s Sample) size() int { return s.N + s.Backlog }

// find returns the finding of a change, and the reason if it is inconclusive. A side with more backlogs than the other
// can only be worse.
func (x *Change) find(c *Comparison, a, b Sample, better plan.Direction) (Finding, string) {
	f := NoDifference
	up := x.sign > 0
	switch {
	case x.Why != "":
		return Inconclusive, x.Why
	case x.Adjusted > c.Alpha || !x.reaches(c.Effect, a):
	case x.Shift.Estimate != 0 && math.Abs(x.Shift.Estimate) <= a.Bound+b.Bound:
		return Inconclusive, "the change is within the error bounds of the values (±)"
	case better == plan.NeitherBetter && up:
		f = Higher
	case better == plan.NeitherBetter:
		f = Lower
	case up == (better == plan.HigherIsBetter):
		f = Better
	default:
		f = Worse
	}
	if a.Backlog+b.Backlog == 0 || f == Worse && b.Backlog > a.Backlog || f == Better && a.Backlog > b.Backlog {
		return f, ""
	}
	var whys []string
	for i, s := range []Sample{a, b} {
		if s.Backlog > 0 {
			whys = append(whys, []string{"base", "other side"}[i]+": "+s.backlog())
		}
	}
	if x.Backlogs > 0 {
		whys = append(whys, fmt.Sprintf("backlog in %d of %d earlier runs", x.Backlogs, x.Earlier))
	}
	return Inconclusive, strings.Join(whys, "; ")
}

// reaches reports whether a change is at least the minimum effect. A change from zero, or to or from a backlog, always
// is.
func (x *Change) reaches(effect float64, base Sample) bool {
	switch {
	case x.Ratio != nil:
		return math.Abs(x.Ratio.Estimate-1) >= effect
	case x.Shift.Estimate != 0:
		return math.Abs(x.Shift.Estimate) >= effect*math.Abs(base.Median)
	}
	return x.sign != 0
}

// Found returns the number of changes per finding.
func (c Comparison) Found() map[Finding]int {
	n := map[Finding]int{}
	c.changes(func(_ *Value, x *Change, _ *Row, _ int) {
		if x.Finding != "" {
			n[x.Finding]++
		}
	})
	return n
}

// key returns a key that is equal for matching cells. It is made from the coordinates on the axes of Match, or with By
// on all other axes; otherwise it is the id. missingAxis is an axis of Match that the cell does not have.
func (o Options) key(c plan.Cell) (key string, at []plan.Coordinate, missingAxis string) {
	if len(o.Match) == 0 && o.By == "" {
		return c.ID, c.Coordinates, ""
	}
	for _, x := range c.Coordinates {
		if slices.Contains(o.Match, x.Axis) || len(o.Match) == 0 && x.Axis != o.By {
			at = append(at, x)
		}
	}
	for _, axis := range o.Match {
		if _, has := c.Coordinate(axis); !has {
			missingAxis = axis
		}
	}
	return plan.Cell{Coordinates: at}.Name(), at, missingAxis
}

// NoWorse tests every value of the second of two runs against the base. The margin is Options.Effect, the confidence 1
// − Options.Alpha. All decisions that a rule is violated are one family (Holm). Decisions that it is met need no
// correction. Any single one rejects the claim that all are met, so its error is at most that of one. Source:
// intersection–union test, Berger 1982.
func (c Comparison) NoWorse() []Decision {
	var all []Decision
	var ps []float64
	var family []int
	for v := range c.Values {
		for r := range c.Values[v].Rows {
			d := Decision{Value: &c.Values[v], Row: &c.Values[v].Rows[r], Worst: math.NaN(), Detectable: math.NaN()}
			if p, decided := d.decide(c.Effect, c.Alpha); decided {
				ps, family = append(ps, p), append(family, len(all))
			}
			all = append(all, d)
		}
	}
	for i, p := range stats.Holm(ps) {
		d := &all[family[i]]
		a, b := d.Row.Sides[0], d.Row.Sides[1]
		d.P = p
		d.Violated = p <= c.Alpha && (a.Backlog+b.Backlog == 0 || b.Backlog > a.Backlog)
	}
	return all
}

// Decision is the result of a non-inferiority test: is a value of a cell worse than the base's by more than a margin?
// It is inconclusive if it is neither met nor violated.
type Decision struct {
	Value    *Value
	Row      *Row
	Met      bool    // the one-sided confidence interval of the change is above the margin
	Violated bool    // it is below, with a confidence for all values and cells together
	P        float64 // of Violated, after Holm's procedure
	Worst    float64 // the worse end of the interval of the change, as a fraction; NaN if unknown
	// Detectable is the minimum detectable effect, as a fraction: an unchanged value meets a margin of this size in 80
	// % of runs. Its formula is se·(t(1 − α) + t(0.8)), here of logarithms (Bloom 1995, Minimum Detectable Effects).
	// NaN if unknown.
	Detectable float64
}

// power is the probability with which the minimum detectable effect is detected.
const power = 0.8

// decide determines whether the margin is met. p is the probability of a change as bad as this one if the true change
// equals the margin. decided is false if the change is inconclusive whatever its numbers are.
func (d *Decision) decide(margin, alpha float64) (p float64, decided bool) {
	x, a, b := d.Row.Changes[0], d.Row.Sides[0], d.Row.Sides[1]
	if x.Why != "" || a.HasBacklog() && b.HasBacklog() {
		return 0, false
	}
	if a.HasBacklog() || b.HasBacklog() {
		d.Met = a.HasBacklog()
		return map[bool]float64{true: 1, false: x.P}[d.Met], true
	}
	freedom, sign := float64(x.Earlier-1), -1.0
	if d.Value.Better == plan.HigherIsBetter {
		sign = 1
	}
	half := stats.StudentQuantile(1-alpha, freedom) * x.Error
	detectable := half + stats.StudentQuantile(power, freedom)*x.Error
	// gain is the improvement, limit the minimum that is allowed. The true gain can be smaller by worse, or larger by
	// better, because of plan.Value.Bound. Only times have one, and for times less is better.
	var gain, limit, worse, better float64
	if x.Ratio != nil {
		gain, limit = sign*math.Log(x.Ratio.Estimate), sign*math.Log(1-sign*margin)
		worse = math.Log1p(b.Bound/b.Median) - math.Log1p(-min(1, a.Bound/a.Median))
		better = math.Log1p(a.Bound/a.Median) - math.Log1p(-min(1, b.Bound/b.Median))
		d.Worst, d.Detectable = math.Expm1(sign*(gain-half-worse)), math.Abs(math.Expm1(-sign*detectable))
	} else {
		gain, limit, worse = sign*x.Shift.Estimate, -margin*math.Abs(a.Median), a.Bound+b.Bound
		better = worse
		d.Worst, d.Detectable = sign*(gain-half-worse)/math.Abs(a.Median), detectable/math.Abs(a.Median)
	}
	t := func(gain float64) float64 {
		if gain == limit && x.Error == 0 { // a change equal to the margin is allowed
			return math.Inf(1)
		}
		return (gain - limit) / x.Error
	}
	d.Met = b.Backlog == 0 && stats.StudentT(t(gain-worse), freedom) >= 1-alpha
	return stats.StudentT(t(gain+better), freedom), true
}

// Shortage is a comparison along an axis for which a run has too few repetitions: no difference, however large, could
// be significant.
type Shortage struct {
	By     string // the axis
	Tests  int
	Have   int // repetitions
	Needed int
}

// Shortages checks the comparison along every axis that readers compare in a table: its columns, or without several of
// these its first row axis. It assumes Compare with the usual values and the default Alpha.
func Shortages(run plan.Run) (all []Shortage) {
	have := run.Repeat
	if run.Until != nil {
		have = min(have, sampling.MinRepetitions(*run.Until))
	}
	add := func(axis string, tests int) {
		if slices.ContainsFunc(all, func(s Shortage) bool { return s.By == axis }) {
			return
		}
		if needed := stats.MinRepetitions(DefaultAlpha, tests); tests > 0 && have < needed {
			all = append(all, Shortage{By: axis, Tests: tests, Have: have, Needed: needed})
		}
	}
	for _, table := range run.Tables {
		compared := 0
		for _, axis := range table.Columns {
			tests := testsAlong(run, axis)
			add(axis, tests)
			compared += tests
		}
		if compared == 0 && len(table.Rows) > 0 {
			add(table.Rows[0], testsAlong(run, table.Rows[0]))
		}
	}
	return all
}

// testsAlong returns the number of tests of a comparison along an axis.
func testsAlong(run plan.Run, axis string) (tests int) {
	sides := map[string]int{} // by the coordinates on the other axes, and value
	for _, c := range run.Cells {
		if c.Workload.Search != nil { // a search repeats by itself
			continue
		}
		if _, has := c.Coordinate(axis); !has {
			continue
		}
		others, _, _ := Options{By: axis}.key(c)
		for _, name := range Usual() {
			if slices.ContainsFunc(c.Workload.Parts(), func(w plan.Workload) bool { return w.Absent(name) == "" }) {
				sides[others+" "+name]++
			}
		}
	}
	for _, n := range sides {
		tests += n - 1
	}
	return tests
}
