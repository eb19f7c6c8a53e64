package matrix

import (
	"fmt"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
)

// validateSearch returns the errors of a capacity search, and of fields that cannot be combined with one.
func validateSearch(w plan.Workload, metrics plan.Metrics) []problem {
	s := w.Search
	if s == nil || len(w.Groups) > 0 { // a search with groups is reported by inconsistentParts
		return nil
	}
	var out problems
	p := w.Publishers
	const sets = "the search sets the rate; remove "
	out.report(p.Rate > 0, "publishers.rate", sets+"publishers.rate, or give it as search.from")
	out.report(len(p.Profile) > 0, "publishers.profile", sets+"publishers.profile")
	out.report(p.Count > 0, "publishers.count", "steps of a search have a fixed duration; remove publishers.count")
	out.report(p.Lifetime != plan.Lifetime{}, "publishers.lifetime",
		"publishers that disconnect send less than the rate of a step; remove it")
	join, leave := w.Consumers.Lifetime.ConnectAt, w.Consumers.Lifetime.DisconnectAt
	out.report(join > 0, "consumers.lifetime.connectAt",
		"steps of a search are shorter than the verification, and consumers that connect at a fixed time would change the load; remove it")
	out.report(leave > 0, "consumers.lifetime.disconnectAt",
		"steps of a search are shorter than the verification, and consumers that disconnect at a fixed time would change the load; remove it")
	out.report(len(w.Faults) > 0, "search",
		"a fault makes the condition fail independently of capacity; remove faults or search")
	out.report(s.From > s.Max, "search.from", "%v is above search.max, %v", s.From, s.Max)
	out.report(s.Steps < s.Repeats+2, "search.steps", "%d steps are too few for a search with %d repeats; give at least %d",
		s.Steps, s.Repeats, s.Repeats+2)
	why := unmeasured(s.While, w, metrics)
	out.report(why != "", "search.while", "%s", why)
	return out
}

// unmeasured returns the error of a condition, or the values in it that never have a number in this workload.
func unmeasured(condition string, w plan.Workload, metrics plan.Metrics) string {
	c, err := rules.ParseCondition(condition, w, metrics)
	if err != nil {
		return err.Error()
	}
	var absent []string
	for _, name := range c.Names() {
		if why := w.Absent(name); why != "" {
			absent = append(absent, fmt.Sprintf("%s never has a number in this cell: %s", name, why))
		}
	}
	return strings.Join(absent, "; ")
}
