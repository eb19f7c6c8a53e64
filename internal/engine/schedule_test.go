package engine

import (
	"testing"
	"time"
)

// The union of the publishers' schedules is the cell's: one message every 1/rate, none twice, none left out.
func TestUniformSharesOneSchedule(t *testing.T) {
	const rate, publishers, each = 3000.0, 7, 500
	due := map[time.Duration]int{}
	for i := range publishers {
		s, last := newUniform(rate, i, publishers), time.Duration(-1)
		for range each {
			at := s.Next()
			if at <= last {
				t.Fatalf("publisher %d: due %v after %v", i, at, last)
			}
			due[at]++
			last = at
		}
	}
	for n := range publishers * each {
		at := time.Duration(float64(n) * 1e9 / rate)
		if due[at] != 1 {
			t.Fatalf("message %d, due at %v: scheduled %d times", n, at, due[at])
		}
	}
}

// A sum of rounded periods would drift; a million seconds later the error is still below a microsecond.
func TestUniformDoesNotDrift(t *testing.T) {
	s := newUniform(3, 0, 1)
	s.next = 3_000_000
	if at := s.Next(); at < 1e15-time.Microsecond || at > 1e15+time.Microsecond {
		t.Errorf("message 3,000,000 at 3/s is due at %v, want 1,000,000 s", at)
	}
}
