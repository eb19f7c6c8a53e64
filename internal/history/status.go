package history

import (
	"slices"

	"lockstep/internal/history/change"
	"lockstep/internal/plan"
)

// statusOf returns the reason why a repetition has no usable number, or its flag; "": a usable number without such a
// flag.
func statusOf(p plan.HistoryPoint) string {
	_, bounded := p.Value.LessThan()
	switch {
	case p.Verdict != plan.Valid:
		return string(p.Verdict)
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

// StatusChange is a change of the status of a value.
type StatusChange struct {
	Before  string // the most frequent status before; "": a number
	Earlier int    // runs with it before
	Of      int    // runs before
	Status  string // of the newest runs
	Since   Point  // the first of them
	Runs    int    // number of them
}

// Status returns the change to the status of the newest run, if less than a tenth of the earlier runs had it. newest is
// the newest run of the matrix. A status other than a number is reported as long as it lasts. A number after another
// status is reported in the first change.Recent runs. Flags of a number, and backlog in some repetitions, must occur in
// two consecutive runs, because chance causes them in single runs.
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
	c.Since, c.Runs, c.Of = points[start], len(points)-start, start
	count := map[string]int{}
	for _, p := range points[:start] {
		if count[p.Status]++; count[p.Status] > c.Earlier {
			c.Before, c.Earlier = p.Status, count[p.Status]
		}
	}
	flagged := func(status string) bool { return status == SomeBacklog || plan.Flag(status).Incomparable() }
	switch {
	case c.Earlier < minEarlier || 10*count[c.Status] >= c.Of:
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
