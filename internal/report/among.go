package report

import (
	"slices"

	"lockstep/internal/plan"
	"lockstep/internal/stats"
)

// among finds what the median of numbers and of values that are only known to be less than something, and so than all
// of the numbers, is made of: one number or two, or none and what it is less than, for people. If only one of the two
// in the middle is a number, the median is at most that. Where a number may be less than such a value, only numbers are
// looked at.
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
	all := n + len(numbers)
	if all/2 < n {
		return nil, less
	}
	return stats.Sorted(numbers)[max(0, (all-1)/2-n) : all/2-n+1], ""
}

// median is the median of numbers, which are those of values. It is a lower bound where a value that is one may be
// above it, and has their largest bound.
func median(numbers []float64, values []plan.Value) plan.Value {
	middle := plan.Value{Number: stats.Median(numbers)}
	upper := stats.Sorted(numbers)[len(numbers)/2]
	for _, v := range values {
		if v.NA != "" {
			continue
		}
		middle.Bound = max(middle.Bound, v.Bound)
		if v.Number <= upper {
			middle.Over = max(middle.Over, v.Over)
		}
	}
	return middle
}

func valuesOf(outcomes []plan.Outcome, name string) (all []plan.Value) {
	for _, o := range outcomes {
		v, _ := o.Value(name)
		all = append(all, v)
	}
	return all
}
