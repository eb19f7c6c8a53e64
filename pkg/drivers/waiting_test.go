package drivers

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitingIsAUnion proves that waits of a publisher and blocked writes of its connection count once where they
// overlap, also while they last. Blocked writes count for all publishers of the connection, and a wait only for one.
func TestWaitingIsAUnion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := &Waiting{}
		one, other := &Waiting{Writes: writes}, &Waiting{Writes: writes}
		for i, step := range []struct {
			then       func()
			one, other time.Duration // after the next millisecond
		}{
			{func() {}, 0, 0},
			{one.Begin, 1, 0},
			{writes.Begin, 2, 1},
			{one.Begin, 3, 2},
			{writes.Begin, 4, 3},
			{one.End, 5, 4},
			{writes.End, 6, 5},
			{one.End, 7, 6},
			{writes.End, 7, 6},
			{other.Begin, 7, 7},
			{other.End, 7, 7},
			{one.Begin, 8, 7},
			{func() { one.EndAbove(2 * time.Millisecond) }, 7, 7},
			{one.Begin, 8, 7},
			{writes.Begin, 9, 8},
			{func() { one.EndAbove(2 * time.Millisecond) }, 9, 9}, // one millisecond of own work
			{writes.End, 9, 9},
			{other.Begin, 9, 10},
			{func() { other.EndAbove(time.Millisecond) }, 9, 10},
		} {
			step.then()
			time.Sleep(time.Millisecond)
			if a, b := time.Duration(one.Nanos()), time.Duration(other.Nanos()); a != step.one*time.Millisecond ||
				b != step.other*time.Millisecond {
				t.Errorf("step %d: %v and %v, want %d ms and %d ms", i, a, b, step.one, step.other)
			}
		}
		if none := (*Waiting)(nil); none.Nanos() != 0 {
			t.Error("none waits")
		} else {
			none.Begin()
			none.End()
		}
	})
}

// TestWaitingAllocatesNothing proves this because waits are on the hot path.
func TestWaitingAllocatesNothing(t *testing.T) {
	w := &Waiting{Writes: &Waiting{}}
	if n := testing.AllocsPerRun(1000, func() {
		w.Begin()
		w.EndAbove(time.Hour)
		_ = w.Nanos()
	}); n != 0 || w.Nanos() != 0 {
		t.Errorf("%v allocations for each wait; waited for %d ns, none of them an hour", n, w.Nanos())
	}
}
