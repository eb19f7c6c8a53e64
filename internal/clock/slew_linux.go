package clock

import (
	"math"

	"golang.org/x/sys/unix"
)

// Slew returns by how much CLOCK_MONOTONIC is ahead of CLOCK_MONOTONIC_RAW, which NTP does not slew. bound is the
// maximum error. Both are in ns. Without such a clock both are 0. It is safe for concurrent use.
func Slew() (ahead, bound int64) {
	if bubbled() {
		return 0, 0
	}
	bound = math.MaxInt64
	for range 3 { // use the reading with the shortest interruption
		var before, raw, after unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &raw) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after) != nil {
			return 0, 0
		}
		if half := (after.Nano() - before.Nano() + 1) / 2; half < bound {
			ahead, bound = before.Nano()+half-raw.Nano(), half
		}
	}
	return ahead, bound
}
