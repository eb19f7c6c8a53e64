package compare

import (
	"math"

	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// Decision is the result of a test of non-inferiority: is a value of a cell worse than that of the base by more than a
// margin? It is inconclusive if it is neither met nor violated.
type Decision struct {
	Value    *Value
	Row      *Row
	Met      bool    // the one-sided confidence interval of the change is above the margin
	Violated bool    // it is below, at a confidence that holds for all values and cells together
	P        float64 // of Violated, after Holm
	Worst    float64 // the change at the end of the interval that is worse, as a part; NaN if it is unknown
	// Detectable is the smallest detectable effect, as a part: an unchanged value meets a margin of this size in 80 %
	// of runs (Bloom 1995, Minimum Detectable Effects: se·(t(1 − α) + t(0.8)), here of logarithms). NaN if it is
	// unknown.
	Detectable float64
}

// power is the probability with which the smallest detectable effect is detected.
const power = 0.8

// NoWorse tests every value of the second of two runs against the base, with Options.Effect as the margin and 1 −
// Options.Alpha as the confidence. All decisions that something is violated are one family (Holm). Those that it is met
// need no correction: the claim that all are met is rejected by any one of them, so that its error is at most that of
// one (intersection–union test, Berger 1982).
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

// decide decides whether the margin is met. p is the probability of a change as bad as this one if the true change is
// the margin; there is none for a change that is inconclusive whatever its numbers are.
func (d *Decision) decide(margin, alpha float64) (p float64, decided bool) {
	x, a, b := d.Row.Changes[0], d.Row.Sides[0], d.Row.Sides[1]
	if x.Why != "" || a.stuck() && b.stuck() {
		return 0, false
	}
	if a.stuck() || b.stuck() {
		d.Met = a.stuck()
		return map[bool]float64{true: 1, false: x.P}[d.Met], true
	}
	freedom, sign, bound := float64(x.Earlier-1), -1.0, (a.Bound+b.Bound)/math.Abs(a.Median)
	if d.Value.Better == plan.HigherIsBetter {
		sign = 1
	}
	half := stats.StudentQuantile(1-alpha, freedom) * x.Error
	detectable := half + stats.StudentQuantile(power, freedom)*x.Error
	// By how much it is better, the least that is allowed, and by how much the values may be off (plan.Value.Bound).
	var gain, limit, off float64
	if x.Ratio != nil {
		gain, limit, off = sign*math.Log(x.Ratio.Estimate), sign*math.Log(1-sign*margin), math.Log1p(bound)
		d.Worst, d.Detectable = math.Expm1(sign*(gain-half-off)), math.Abs(math.Expm1(-sign*detectable))
	} else {
		gain, limit, off = sign*x.Shift.Estimate, -margin*math.Abs(a.Median), a.Bound+b.Bound
		d.Worst, d.Detectable = sign*(gain-half-off)/math.Abs(a.Median), detectable/math.Abs(a.Median)
	}
	t := func(gain float64) float64 {
		if gain == limit && x.Error == 0 { // the margin itself is allowed
			return math.Inf(1)
		}
		return (gain - limit) / x.Error
	}
	d.Met = b.Backlog == 0 && stats.StudentT(t(gain-off), freedom) >= 1-alpha
	return stats.StudentT(t(gain+off), freedom), true
}
