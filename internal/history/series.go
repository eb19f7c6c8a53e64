package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/history/change"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/stats"
)

// Series is a value of a cell over comparable runs: those from the same environment.
type Series struct {
	Cell        plan.HistoryCell // without points
	Value       string
	Environment plan.Environment
	Points      []Point        // oldest first
	Newest      bool           // of the series of this value and cell, it has the newest repetition
	Changes     []change.Point // At is an index of Points

	hosts string // fingerprint of Environment
}

// Point is a value of a cell in one run.
type Point struct {
	Run         string
	Matrix      string
	Started     time.Time
	Number      float64 // median of the usable repetitions and those with a backlog, which are the worst, as in tables
	Usable      int     // number of usable repetitions; 0: there is no Number
	Status      string  // of most repetitions, or SomeBacklog; "": a usable number
	Repetitions []plan.HistoryPoint
	// New lists the differences from the previous run: "version: 3.13.7 → 4.0.5".
	New []string
}

// Common is a change of one value in the same runs, in more than a third of the cells that were measured from the same
// hosts.
type Common struct {
	Value  string
	Since  Point     // the first run of the change
	Runs   int       // number of runs with the change
	Cells  []string  // names
	Tested int       // cells with this value
	Shifts []float64 // one per element of Cells, relative to the level before
}

// Trends is series with their change points, which were tested together.
type Trends struct {
	Series []Series
	Common []Common
	Tested int // series with enough runs for an alarm
}

// Depth is the number of newest runs of a cell in which alarms are searched. The error rates in
// docs/concepts/statistics.md were measured with it.
const Depth = 90 + change.Recent

// NewTrends divides the points of answers into series and finds their changes. If run is not empty, only series from
// the hosts of this run can have alarms.
func NewTrends(run string, answers ...Answer) (t Trends) {
	for _, a := range answers {
		for _, c := range a.History.Cells {
			points := c.Points
			c.Points = nil
			var order []string
			by := map[string][]plan.HistoryPoint{}
			for _, p := range points {
				if by[p.Environment] == nil {
					order = append(order, p.Environment)
				}
				by[p.Environment] = append(by[p.Environment], p)
			}
			newest := ""
			for _, hosts := range order { // the last one if several have a repetition of the same time
				if some := by[hosts]; some[len(some)-1].At.Equal(points[len(points)-1].At) {
					newest = hosts
				}
			}
			for _, hosts := range order {
				s := Series{Cell: c, Value: a.Value, Environment: a.History.Environments[hosts], Points: newPoints(by[hosts]),
					Newest: hosts == newest, hosts: hosts}
				addDifferences(s.Points, a.History.Subjects)
				t.Series = append(t.Series, s)
			}
		}
	}
	t.find(run)
	return t
}

// group is the series of a matrix from the same hosts. Its runs are numbered together.
type group struct{ matrix, hosts string }

func (s Series) group() group { return group{s.Cell.Matrix, s.hosts} }

// groupRun is a run of a group.
type groupRun struct {
	started time.Time
	cells   map[string]bool
}

// runsOf returns the runs of each group.
func (t *Trends) runsOf() map[group]map[string]groupRun {
	all := map[group]map[string]groupRun{}
	for _, s := range t.Series {
		g := s.group()
		if all[g] == nil {
			all[g] = map[string]groupRun{}
		}
		for _, p := range s.Points {
			if p.Matrix != g.matrix {
				continue
			}
			if _, has := all[g][p.Run]; !has {
				all[g][p.Run] = groupRun{p.Started, map[string]bool{}}
			}
			all[g][p.Run].cells[s.Cell.ID] = true
		}
	}
	return all
}

// scheduled returns the start times of the runs of a group that have at least half as many cells as its median run.
// Other runs are of a part of the matrix and have the number of the run before them.
func scheduled(runs map[string]groupRun) (started []time.Time) {
	var sizes []float64
	for _, r := range runs {
		sizes = append(sizes, float64(len(r.cells)))
	}
	half := stats.Median(sizes) / 2
	for _, r := range runs {
		if float64(len(r.cells)) >= half {
			started = append(started, r.started)
		}
	}
	slices.SortFunc(started, time.Time.Compare)
	return started
}

// find finds the changes in all series. The newest scheduled run of each group has the number 0, and earlier runs have
// negative numbers.
func (t *Trends) find(run string) {
	runs, starts := t.runsOf(), map[group][]time.Time{}
	for g, some := range runs {
		starts[g] = scheduled(some)
	}
	all, cells := make([]change.Series, len(t.Series)), map[string]int{}
	at := make([][]int, len(t.Series)) // indices of the points that have a number
	for i, s := range t.Series {
		g := s.group()
		if _, has := runs[g][run]; run != "" && !has {
			continue
		}
		all[i].Group = strings.Join([]string{s.Value, g.matrix, g.hosts}, "\x00")
		for j, p := range s.Points {
			if p.Usable > 0 {
				before, _ := slices.BinarySearchFunc(starts[g], p.Started,
					func(x, at time.Time) int { return cmp.Or(x.Compare(at), -1) })
				all[i].Runs, all[i].Values = append(all[i].Runs, before-len(starts[g])), append(all[i].Values, p.Number)
				at[i] = append(at[i], j)
			}
		}
		if len(at[i]) > 0 {
			cells[all[i].Group]++
		}
	}
	found := change.Find(all, 0)
	t.Tested = found.Tested
	for i, points := range found.Points {
		for j := range points {
			points[j].At = at[i][points[j].At]
		}
		t.Series[i].Changes = points
	}
	for _, c := range found.Common {
		common := Common{Value: t.Series[c.Series[0]].Value, Runs: c.To - c.From + 1, Shifts: c.Shifts,
			Tested: cells[c.Group]}
		for _, i := range c.Series {
			common.Cells = append(common.Cells, t.Series[i].Cell.Name())
			common.Since = t.Series[i].Points[at[i][slices.Index(all[i].Runs, c.From)]]
		}
		t.Common = append(t.Common, common)
	}
}

// newPoints returns one point per run.
func newPoints(repetitions []plan.HistoryPoint) (all []Point) {
	for _, r := range repetitions {
		if n := len(all); n == 0 || all[n-1].Run != r.Run {
			all = append(all, Point{Run: r.Run, Matrix: r.Matrix, Started: r.At})
		}
		p := &all[len(all)-1]
		p.Repetitions = append(p.Repetitions, r)
	}
	for i := range all {
		p := &all[i]
		var numbers []float64
		count := map[string]int{}
		for _, r := range p.Repetitions {
			if r.Usable() {
				numbers = append(numbers, r.Value.Number)
				p.Usable++
			} else if r.Verdict == plan.Valid && r.Value.NA == string(plan.Backlog) {
				numbers = append(numbers, math.Inf(1)) // only latencies have no number because of a backlog
			}
			status := statusOf(r)
			if count[status]++; count[status] > count[p.Status] || count[status] == count[p.Status] && status == "" {
				p.Status = status
			}
		}
		if p.Status == "" && count[string(plan.Backlog)] > 0 {
			p.Status = SomeBacklog
		}
		if p.Number = stats.Median(numbers); !(p.Number < math.Inf(1)) { // NaN without numbers
			p.Number, p.Usable = 0, 0
			if p.Status == SomeBacklog {
				p.Status = string(plan.Backlog)
			}
		}
	}
	return all
}

// Numbers returns the numbers of the points that have one.
func (s Series) Numbers() (numbers []float64) {
	for _, p := range s.Points {
		if p.Usable > 0 {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// Distinction returns the hosts of a series if its cell also has series from other hosts, else "".
func (t Trends) Distinction(s Series) string {
	for _, o := range t.Series {
		if o.Cell.ID == s.Cell.ID && o.hosts != s.hosts {
			return "from " + strings.Join(s.Environment.Hosts, ", ")
		}
	}
	return ""
}

// Causes lists the differences of the first run of a new level and of its two neighbours, because a change is located
// only to within one run.
func (s Series) Causes(at int) (causes []string) {
	for i := max(1, at-1); i <= min(at+1, len(s.Points)-1); i++ {
		for _, text := range s.Points[i].New {
			causes = append(causes, text+" with "+s.Points[i].Run)
		}
	}
	return causes
}

// addDifferences adds the differences between each run and those before it. They are the settings of the subject,
// against the last run that has one, and the version of Lockstep.
func addDifferences(points []Point, subjects map[string]plan.Subject) {
	before := settingsOf(points[0], subjects)
	for i := 1; i < len(points); i++ {
		p := &points[i]
		after := settingsOf(*p, subjects)
		if after != nil && before != nil {
			both := maps.Clone(before)
			maps.Copy(both, after)
			for _, name := range slices.Sorted(maps.Keys(both)) {
				if before[name] != after[name] {
					p.New = append(p.New, arrow(name, before[name], after[name]))
				}
			}
		}
		if after != nil {
			before = after
		}
		if old, new := points[i-1].Repetitions[0].Version, p.Repetitions[0].Version; old != new {
			p.New = append(p.New, arrow("lockstep", old, new))
		}
	}
}

// settingsOf returns the subject of the first repetition of a run that has one; nil: none has.
func settingsOf(p Point, subjects map[string]plan.Subject) map[string]string {
	for _, r := range p.Repetitions {
		if s := flat(subjects[r.Subject]); len(s) > 0 {
			return s
		}
	}
	return nil
}

func arrow(name, before, after string) string {
	return fmt.Sprintf("%s: %s → %s", name, cmp.Or(before, "none"), cmp.Or(after, "none"))
}

// flat returns a subject as settings by name.
func flat(s plan.Subject) map[string]string {
	all := maps.Clone(s.Settings)
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range map[string]string{"product": s.Product, "version": s.Version, "label": s.Label,
		"members": strings.Join(s.Members, ", "), "endpoints": strings.Join(s.Endpoints, ", ")} {
		if value != "" {
			all[name] = value
		}
	}
	return all
}

// Status returns the change to the status of the newest run, if less than a tenth of the earlier runs had it, or if
// that many runs in a row have a probability below 0.1 % with the earlier share. newest is the newest run of the
// matrix. A status other than a number is reported as long as it lasts. A number after another status is reported in
// the first change.Recent runs. Flags of a number, and backlog in some repetitions, must occur in two consecutive runs,
// because chance causes them in single runs.
func (s Series) Status(newest Point) (c StatusChange, changed bool) {
	points := s.Points
	if len(points) > 0 && points[len(points)-1].Run != newest.Run {
		newest.Status = Missing
		points = append(slices.Clip(points), newest)
	}
	if len(points) == 0 {
		return c, false
	}
	c.Status = points[len(points)-1].Status
	start := len(points) - 1
	for start > 0 && points[start-1].Status == c.Status {
		start--
	}
	c.Since, c.At, c.Runs, c.Of = points[start].Run, points[start].Started.UTC(), len(points)-start, start
	count := map[string]int{}
	for _, p := range points[:start] {
		if count[p.Status]++; count[p.Status] > c.Earlier {
			c.Before, c.Earlier = p.Status, count[p.Status]
		}
	}
	share := float64(count[c.Status]) / float64(max(1, c.Of))
	flagged := func(status string) bool { return status == SomeBacklog || plan.Flag(status).Incomparable() }
	switch {
	case c.Earlier < minEarlier || share >= 0.1 && math.Pow(share, float64(c.Runs)) >= 0.001:
		return c, false
	case c.Status == "" && c.Runs > change.Recent:
		return c, false
	case (flagged(c.Status) || c.Status == "" && flagged(c.Before)) && c.Runs < 2:
		return c, false
	}
	return c, true
}

// minEarlier is the minimum number of runs with another status before a change is reported.
const minEarlier = 3

// statusOf returns the reason why a repetition has no usable number, or its flag; "": a usable number without such a
// flag.
func statusOf(p plan.HistoryPoint) string {
	_, bounded := p.Value.LessThan()
	switch {
	case p.Verdict != plan.Valid:
		return p.Verdict.Word()
	case bounded || p.Value.Over > 0:
		return "only a bound"
	case p.Value.NA != "":
		return p.Value.NA
	case slices.Contains(p.Value.Flags, plan.Backlog):
		return string(plan.Backlog)
	}
	for _, f := range p.Value.Flags {
		if f.Incomparable() {
			return string(f)
		}
	}
	return ""
}

// Statuses of a run that no repetition has.
const (
	Missing     = "missing"                     // the newest run has no value of the cell
	SomeBacklog = "backlog in some repetitions" // in fewer than half of them
)

// StatusChange is a change of the status of a value. It can be compared with ==.
type StatusChange struct {
	Before  string    `json:"before"`  // the most frequent status before; "": a number
	Earlier int       `json:"earlier"` // runs with it before
	Of      int       `json:"of"`      // runs before
	Status  string    `json:"status"`  // of the newest runs; "": a number
	Runs    int       `json:"runs"`    // number of them
	Since   string    `json:"since"`   // the first of them
	At      time.Time `json:"at"`      // its start, UTC
}
