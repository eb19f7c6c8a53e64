package kit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// An unknown value is not a rate: the first reading, one after a restart, and one at the same time.
func TestPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c kit.Rates
		for i, step := range []struct {
			after       time.Duration
			value, rate float64
			known       bool
		}{
			{0, 100, 0, false},
			{2 * time.Second, 110, 5, true},
			{time.Second, 110, 0, true},
			{time.Second, 3, 0, false},
			{500 * time.Millisecond, 4, 2, true},
			{0, 9, 0, false},
		} {
			time.Sleep(step.after)
			if rate, known := c.PerSecond("a", step.value); rate != step.rate || known != step.known {
				t.Errorf("reading %d gives %v, %t; want %v, %t", i, rate, known, step.rate, step.known)
			}
		}
		if _, known := c.PerSecond("b", 1000); known {
			t.Error("the first reading of another counter gives a rate")
		}
	})
}
