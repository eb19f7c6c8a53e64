package judge

import (
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// naNoInterval is why there is no highest quantile of a short measurement.
const naNoInterval = "the measurement is shorter than one interval"

// highest sets the highest quantiles of any full interval of the measurement: what the worst minute was like, where the whole hides it.
// Samples count in the interval in which they ended, and those that ended in the drain in the last one: a broker that stalls until
// then is not to look better for it. What keeps a latency from being shown keeps these from it too.
func (j *judge) highest() {
	for _, s := range []struct {
		name   string
		series record.Series
	}{{"send", record.Send}, {"processing", record.Processing}} {
		intervals := j.intervals(s.series)
		for _, q := range plan.HighestQuantiles() {
			name := s.name + "." + q.Name + ".highest"
			whole := j.out.Values[s.name+"."+q.Name]
			switch {
			case whole.NA != "":
				j.na(name, whole.NA, whole.Flags...)
			case len(intervals) == 0:
				j.na(name, naNoInterval)
			default:
				worst := plan.Value{NA: NAFewSamples, Flags: whole.Flags}
				for _, d := range intervals {
					if v := d.quantile(q.Q); v.NA == "" {
						worst.NA, worst.Number, worst.Over = "", max(worst.Number, v.Number), max(worst.Over, v.Over) // a bound may be above all
					}
				}
				j.out.Values[name] = worst
			}
		}
	}
}

// intervals merges the windows of the measurement's messages to full intervals; one without a sample is left out. Where the measurement ends
// within an interval, what ended in the drain may be of the part that is none.
func (j *judge) intervals(s record.Series) []distribution {
	size := max(1, seconds(j.w.Interval.D()))
	full := int(j.span.sending / (time.Duration(size) * time.Second))
	byInterval := make([][]record.Window, full)
	whole := full*size == j.span.windows
	for _, w := range j.m.Windows() {
		i := w.Index / size
		if whole && full > 0 {
			i = min(i, full-1)
		}
		if w.Measured && w.Index >= 0 && i < full {
			byInterval[i] = append(byInterval[i], w)
		}
	}
	var some []distribution
	for _, windows := range byInterval {
		hist := func(of record.Series) *record.Hist { return record.HistOf(of, windows) }
		if d := distributionOf(s, hist, j.subs); d.hist.Count() > 0 {
			some = append(some, d)
		}
	}
	return some
}
