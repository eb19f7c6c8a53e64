package matrix

import "example.org/lockstep/lockstep/internal/plan"

// validateSteady reports settings with which warm-up "auto" cannot end properly.
func validateSteady(out *problems, w plan.Workload) {
	s, p := w.Steady, w.Publishers
	if !s.Auto {
		return
	}
	out.report(s.Min > s.Max, "steady.min", "min %s is above max %s; swap them", s.Min, s.Max)
	out.report(p.Count > 0, "publishers.count",
		"%d messages with warmup \"auto\": a message count needs a fixed warm-up; give a duration as warmup", p.Count)
	out.report(p.Lifetime.ConnectAt > 0, "publishers.lifetime.connectAt",
		"%s with warmup \"auto\": publishers send nothing in warm-up, so the load never becomes steady; give a duration as warmup", p.Lifetime.ConnectAt)
	out.report(len(p.Profile) > 0 && p.Profile[0].Rate == 0, "publishers.profile",
		"its first stage, which warm-up uses, has rate 0, and warmup is \"auto\"; give a duration as warmup, or a rate above 0")
}
