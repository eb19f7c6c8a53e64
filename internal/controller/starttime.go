package controller

import (
	"math"

	"lockstep/internal/wire"
)

// Offset leads from the controller's clock to another.
type Offset struct {
	Clock string // id of the other
	Add   int64  // ns to add to a time of the controller's clock
	// Bound is how far Add may be off, in ns: nothing where it is the same clock. unknown: the clocks were not
	// compared, and Add was read from the hosts' calendars, which agree as well as their administrators see to.
	Bound int64
}

const unknown = math.MaxInt64

// offset finds the way from this clock to that of an arrival. What the agent measured is carried on to now.
func offset(a wire.Arrival, id string, now, wall int64) Offset {
	o := a.Offset
	switch {
	case a.Clock == id:
		return Offset{Clock: id}
	case o != nil && o.Reference == id:
		age := float64(now + o.Offset - o.At)
		return Offset{Clock: a.Clock, Add: o.Offset + int64(o.Drift/1e6*age), Bound: o.Bound}
	}
	return Offset{Clock: a.Clock, Add: (a.Now - now) - (a.Wall - wall), Bound: unknown}
}
