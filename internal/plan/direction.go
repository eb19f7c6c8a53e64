package plan

import "math"

// Direction is the direction in which a value improves.
type Direction string

// The directions.
const (
	HigherIsBetter Direction = "higher"
	LowerIsBetter  Direction = "lower"
	NeitherBetter  Direction = "" // a property of the load or the environment
)

// Worst returns the worst possible number. It stands for a repetition with a backlog.
func (d Direction) Worst() float64 {
	if d == HigherIsBetter {
		return math.Inf(-1)
	}
	return math.Inf(1)
}
