package report

import (
	"testing"

	"lockstep/internal/plan"
)

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		unit plan.Unit
		x    float64
		want string
	}{
		{plan.PerSecond, 0, "0"},
		{plan.PerSecond, 1234567.4, "1,234,567"},
		{plan.PerSecond, 123.4, "123"},
		{plan.PerSecond, 99.96, "100"},
		{plan.PerSecond, 98.76, "98.8"},
		{plan.PerSecond, 1.5, "1.50"},
		{plan.PerSecond, 0.25, "0.25"},
		{plan.Seconds, 0, "0 s"},
		{plan.Seconds, 42e-9, "42.0 ns"},
		{plan.Seconds, 850e-6, "850 µs"},
		{plan.Seconds, 999.9e-6, "1.00 ms"},
		{plan.Seconds, 12.3e-3, "12.3 ms"},
		{plan.Seconds, 0.9999, "1.00 s"},
		{plan.Seconds, 3600, "3,600 s"},
		{plan.Count, 1000, "1,000"},
		{plan.Count, 2.5, "2.5"},
		{plan.Count, 999, "999"},
		{plan.Bytes, 210 << 20, "210 MiB"},
		{plan.Bytes, 3 << 29, "1.50 GiB"},
		{plan.Bytes, 1023.9, "1.00 KiB"},
		{plan.Bytes, 12, "12.0 B"},
		{plan.Cores, 1.25, "1.25 cores"},
		{plan.Seconds, -0.002, "-2.00 ms"},
	} {
		if got := format(c.unit, c.x); got != c.want {
			t.Errorf("format(%s, %v) = %q, want %q", c.unit, c.x, got, c.want)
		}
	}
}

func TestWrapKeepsWordsWhole(t *testing.T) {
	got := wrap("one twothree four", 8)
	if len(got) != 3 || got[1] != "twothree" {
		t.Errorf("got %q", got)
	}
}
