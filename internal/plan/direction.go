package plan

import "math"

// Direction is which way a value gets better.
type Direction string

// The directions.
const (
	HigherIsBetter Direction = "higher"
	LowerIsBetter  Direction = "lower"
	NeitherBetter  Direction = "" // a fact of the load or the surroundings
)

// Worst is a number that is worse than any: that of a repetition with a backlog.
func (d Direction) Worst() float64 {
	if d == HigherIsBetter {
		return math.Inf(-1)
	}
	return math.Inf(1)
}
