package matrix

import "lockstep/internal/plan"

// neverSteady reports settings with which warm-up "auto" cannot end properly.
func neverSteady(report reporter, w plan.Workload) {
	s, p := w.Steady, w.Publishers
	if !s.Auto {
		return
	}
	report(s.Min > s.Max, "steady.min", "the min, %s, is above the max, %s", s.Min, s.Max)
	report(p.Count > 0, "publishers.count",
		"%d messages with warmup \"auto\": a count begins with the measurement, and how long the load runs before is not known; give a duration as warmup", p.Count)
	report(p.Lifetime.ConnectAt > 0, "publishers.lifetime.connectAt",
		"%s after the measurement began with warmup \"auto\": nothing is sent before, and so nothing gets steady; give a duration as warmup", p.Lifetime.ConnectAt)
	report(len(p.Profile) > 0 && p.Profile[0].Rate == 0, "publishers.profile",
		"its first stage, at which warm-up runs, sends nothing, and warmup is \"auto\": give a duration as warmup, or a rate above 0")
}
