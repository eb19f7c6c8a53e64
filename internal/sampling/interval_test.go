package sampling

import "example.org/lockstep/lockstep/internal/stats"

// interval returns the interval of a cell's median.
func (r *Rounds) interval(id string) (low, high float64) {
	var numbers []float64
	for _, n := range r.cells[id].numbers {
		numbers = append(numbers, *n)
	}
	i := stats.MedianInterval(numbers, r.run.Until.Confidence)
	return i.Low, i.High
}
