package sampling

import "lockstep/internal/stats"

// interval is that of a cell's median.
func (r *Rounds) interval(id string) (low, high float64) {
	s := r.cells[id]
	i := stats.Summarize(s.numbers(s.looked), s.until.Confidence).Interval
	return i.Low, i.High
}
