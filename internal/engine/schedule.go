package engine

import "time"

// Schedule says when the messages of one publisher are due: arithmetic, no clock, so that agents
// compute their own shares and a test can check every one.
type Schedule interface {
	// Next is the due time of the next message, since the beginning of warm-up. Never earlier than the one before.
	Next() time.Duration
}

// uniform spaces the messages of the whole cell evenly: publisher i of k is due at i, i+k, i+2k, … periods.
type uniform struct {
	next, step uint64
	rate       float64 // messages a second of the cell
}

// newUniform is the schedule of publisher i of k at a rate, in messages a second, of all k together.
func newUniform(rate float64, i, k int) *uniform {
	return &uniform{next: uint64(i), step: uint64(k), rate: rate}
}

// Next multiplies rather than adds, so that no error accumulates: exact to 1 ns for 50 days.
func (u *uniform) Next() time.Duration {
	due := time.Duration(float64(u.next) * 1e9 / u.rate)
	u.next += u.step
	return due
}
