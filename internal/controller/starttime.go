package controller

import (
	"math"

	"example.org/lockstep/lockstep/internal/wire"
)

// Offset converts times of the controller's clock to those of another clock.
type Offset struct {
	Clock string // id of the other clock
	Add   int64  // ns to add to a time of the controller's clock
	// Bound is the maximum error of Add in ns; 0 for the same clock. unknown: the clocks were not compared. Then Add
	// was computed from the hosts' wall clocks, and is as accurate as they are.
	Bound int64
}

const unknown = math.MaxInt64

// offset returns the offset from this clock to that of an arrival, extrapolated to now (of this clock; wall: Unix; ns).
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
