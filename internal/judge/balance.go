package judge

import (
	"math"
	"time"

	"lockstep/internal/record"
	"lockstep/internal/stats"
)

const (
	// Tolerance is the part of the publish rate by which the consume rate may differ where tables show one rate, and by which a backlog may grow.
	Tolerance = 0.02
	// falseFlags is the probability that a flag is raised on a stationary load.
	falseFlags = 0.01
	// minLevels is how many levels of a backlog are tested, where there are seconds of warm-up to take them from. Three are tested at least: the
	// error of a slope through two is not known.
	minLevels = 5
	// shortTolerance is the part of the published messages that may be undelivered at the end of a measurement too short for a slope.
	shortTolerance = 0.25
)

// keepsUp reports whether consumers kept up with publishers: something was delivered, and no backlog grew. Backlogs are the messages that were
// published and not yet delivered: of the cell, and of each of its flows, the messages to one queue of one subscription. What was lost or refused
// counts as not delivered; what the broker returned as unroutable, which no consumer can receive, was not published.
//
// A backlog grows if the interval of the slope of its levels, at the ends of seconds, lies above 2 % of the publish rate. The one-sided confidence is
// 99 % for all backlogs of the cell together (Bonferroni). The levels are those of the seconds in which all agents ran, with the last seconds of
// warm-up where those are fewer than five. A slope through fewer than five levels is hardly known, and its error through two not at all: then the backlog of
// the cell also grows if a quarter less was delivered than published.
func (j *judge) keepsUp() bool {
	from, to, _ := j.together()
	if j.span.byCount { // when it ended within a second, how much was delivered by then is not known
		to = min(to, int(j.span.sending/time.Second))
	}
	every := j.perSecond()
	delivered := 0.0
	for i := max(from, every.first); i < to; i++ {
		delivered += every.at(i).unique
	}
	if to > from && delivered == 0 {
		return false
	}
	whole := every.whole(j.subs)
	first := max(every.first, min(from, to-minLevels))
	if to-first < minLevels {
		var all flowSecond
		for i := max(from, every.first); i < min(to, every.first+len(whole)); i++ {
			s := whole[i-every.first]
			all.published, all.delivered = all.published+s.published, all.delivered+s.delivered
		}
		if short := all.delivered < (1-shortTolerance)*all.published; short || to-first < 3 {
			return !short
		}
	}
	from = first
	backlogs := [][]flowSecond{whole}
	if flows := record.FlowsOf(j.subs, j.w.Topology.Queues); flows.Subscriptions*flows.Queues > 1 {
		for subscription := range flows.Subscriptions {
			alike := (j.subs-1-subscription)/flows.Subscriptions + 1
			for queue := range flows.Queues {
				backlogs = append(backlogs, every.flow(flows, subscription, queue, float64(alike)))
			}
		}
	}
	for _, b := range backlogs {
		if grows(b[:to-every.first], from-every.first, j.span.sending.Seconds()-float64(every.first), falseFlags/float64(len(backlogs))) {
			return false
		}
	}
	return true
}

// flowSecond is what was published and delivered in one second of a flow.
type flowSecond struct{ published, delivered float64 }

// grows reports whether a backlog grows over its seconds from one on, the last of which ends at an end, with a probability of error.
func grows(seconds []flowSecond, from int, end, falsely float64) bool {
	var x, levels []float64
	level, published := 0.0, 0.0
	for i, s := range seconds {
		level += s.published - s.delivered
		if i >= from {
			x, levels = append(x, min(float64(i+1), end)), append(levels, level)
			published += s.published
		}
	}
	l := fit(x, levels)
	// Messages on their way vary at least as a Poisson process does.
	counting := stats.NormalQuantile(falsely) * math.Sqrt(max(1, l.level)/l.xx)
	rate := published / (x[len(x)-1] - float64(from))
	return l.slope-max(l.doubt(falsely), counting) > Tolerance*rate
}
