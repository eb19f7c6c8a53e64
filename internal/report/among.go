package report

import (
	"slices"

	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// among finds the (lower) median of numbers and of values that are only known to be less than something, and so than all of the numbers: it is one
// number, or none and what it is less than, for people. Where a number may be less than such a value, only numbers are looked at.
func among(numbers []float64, values []plan.Value) (middle []float64, less string) {
	n, most := 0, 0.0
	for _, v := range values {
		if than, is := v.LessThan(); is {
			if n++; than >= most {
				most, less = than, v.NA
			}
		}
	}
	if n == 0 || len(numbers) > 0 && slices.Min(numbers) < most {
		return numbers, ""
	}
	at := (n+len(numbers)-1)/2 - n
	if at < 0 {
		return nil, less
	}
	return stats.Sorted(numbers)[at : at+1], ""
}

func valuesOf(outcomes []plan.Outcome, name string) (all []plan.Value) {
	for _, o := range outcomes {
		v, _ := o.Value(name)
		all = append(all, v)
	}
	return all
}
