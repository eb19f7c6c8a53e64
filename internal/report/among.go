package report

import (
	"slices"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/stats"
)

// among returns the one or two middle numbers of the median over numbers and upper bounds (values with LessThan). The
// bounds are assumed to be below all numbers. If a bound is the median, middle is empty, and less is the text of the
// largest bound. If only the upper of two middle values is a number, middle is that number, an upper bound of the
// median. If a number is below a bound, the bounds are ignored.
func among(numbers []float64, values []plan.Value) (middle []float64, less string) {
	n, bound := 0, 0.0
	for _, v := range values {
		if than, is := v.LessThan(); is {
			if n++; than >= bound {
				bound, less = than, v.NA
			}
		}
	}
	if n == 0 || len(numbers) > 0 && slices.Min(numbers) < bound {
		return numbers, ""
	}
	all := n + len(numbers)
	if all/2 < n {
		return nil, less
	}
	return stats.Sorted(numbers)[max(0, (all-1)/2-n) : all/2-n+1], ""
}

// median returns the median of numbers, which are the numbers of values, with the largest error bound of them. It is a
// lower bound (Over) if a value at or below the middle is one.
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
