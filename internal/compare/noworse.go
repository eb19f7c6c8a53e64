package compare

import (
	"math"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/stats"
)

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
	if x.Why != "" || a.hasBacklog() && b.hasBacklog() {
		return 0, false
	}
	if a.hasBacklog() || b.hasBacklog() {
		d.Met = a.hasBacklog()
		return map[bool]float64{true: 1, false: x.P}[d.Met], true
	}
	freedom, sign, bound := float64(x.Earlier-1), -1.0, (a.Bound+b.Bound)/math.Abs(a.Median)
	if d.Value.Better == plan.HigherIsBetter {
		sign = 1
	}
	half := stats.StudentQuantile(1-alpha, freedom) * x.Error
	detectable := half + stats.StudentQuantile(power, freedom)*x.Error
	// gain is the improvement, limit the minimum that is allowed, off the error of the values (plan.Value.Bound).
	var gain, limit, off float64
	if x.Ratio != nil {
		gain, limit, off = sign*math.Log(x.Ratio.Estimate), sign*math.Log(1-sign*margin), math.Log1p(bound)
		d.Worst, d.Detectable = math.Expm1(sign*(gain-half-off)), math.Abs(math.Expm1(-sign*detectable))
	} else {
		gain, limit, off = sign*x.Shift.Estimate, -margin*math.Abs(a.Median), a.Bound+b.Bound
		d.Worst, d.Detectable = sign*(gain-half-off)/math.Abs(a.Median), detectable/math.Abs(a.Median)
	}
	t := func(gain float64) float64 {
		if gain == limit && x.Error == 0 { // a change equal to the margin is allowed
			return math.Inf(1)
		}
		return (gain - limit) / x.Error
	}
	d.Met = b.Backlog == 0 && stats.StudentT(t(gain-off), freedom) >= 1-alpha
	return stats.StudentT(t(gain+off), freedom), true
}
