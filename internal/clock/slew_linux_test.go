package clock

import (
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// CLOCK_MONOTONIC is ahead of CLOCK_MONOTONIC_RAW by the returned difference, within its bound: readings of both clocks
// before and after the call limit it.
func TestSlew(t *testing.T) {
	read := func(clock int32) int64 {
		var now unix.Timespec
		if err := unix.ClockGettime(clock, &now); err != nil {
			t.Fatal(err)
		}
		return now.Nano()
	}
	raw1, mono1 := read(unix.CLOCK_MONOTONIC_RAW), read(unix.CLOCK_MONOTONIC)
	ahead, bound := Slew()
	mono2, raw2 := read(unix.CLOCK_MONOTONIC), read(unix.CLOCK_MONOTONIC_RAW)
	if low, high := mono1-raw2, mono2-raw1; bound < 0 || ahead+bound < low || ahead-bound > high {
		t.Errorf("it is %d ± %d ns ahead, want %d to %d", ahead, bound, low, high)
	}
	synctest.Test(t, func(t *testing.T) {
		if ahead, bound := Slew(); ahead != 0 || bound != 0 {
			t.Errorf("on a bubble's clock it is %d ± %d", ahead, bound)
		}
	})
}
