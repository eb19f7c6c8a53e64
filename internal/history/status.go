package history

import (
	"slices"

	"lockstep/internal/history/change"
	"lockstep/internal/plan"
)

// statusOf is why a repetition has no usable number, or "backlog" beside one; "" is a usable number without doubt.
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

// Statuses of a run that are none of a repetition.
const (
	Missing     = "missing"                     // the newest run has no value of the cell
	SomeBacklog = "backlog in some repetitions" // in fewer than half
)

// StatusChange is a change of the status of a value.
type StatusChange struct {
	Before  string // the most frequent status before; "" is a number
	Earlier int    // runs with it before
	Of      int    // runs before
	Status  string // of the newest runs
	Since   Point  // the first of them
	Runs    int    // of them
}

// Status returns the change of the status that the newest run has, if fewer than a tenth of the runs before had that
// status. newest is the newest run of the matrix. A status that is not a number is reported for as long as it lasts, a
// number after another status in the first Recent runs. A flag of a number, and backlog in some repetitions, which
// chance raises in a few runs, have to be in two consecutive runs.
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

// minEarlier is the minimum of runs with another status before a change of the status is reported.
const minEarlier = 3
