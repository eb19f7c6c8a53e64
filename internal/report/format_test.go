package report

import (
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
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
		{"pages", 12, "12 pages"},
		{"pages/s", 0.3456, "0.346 pages/s"},
		{plan.Ratio, 0.0675, "6.8 %"},
		{plan.Seconds, -0.002, "-2.00 ms"},
	} {
		if got := Format(c.unit, c.x); got != c.want {
			t.Errorf("Format(%s, %v) = %q, want %q", c.unit, c.x, got, c.want)
		}
	}
}

// A value below the resolution is not shown as a number. That applies only to latencies: a sum of durations may be 0.
func TestResolutionIsShown(t *testing.T) {
	infos := map[string]plan.ValueInfo{}
	for _, v := range plan.Values() {
		infos[v.Name] = v
	}
	for _, c := range []struct {
		name string
		v    plan.Value
		want string
	}{
		{"send_delay.p50", plan.Value{}, "< 1 µs"},
		{"publish.p50", plan.Value{Number: 999e-9}, "< 1 µs"},
		{"publish.p50", plan.Value{Number: 1e-6}, "1.00 µs"},
		{"publish.p99.highest", plan.Value{Number: 1e-9}, "< 1 µs"},
		{"e2e.max", plan.Value{Number: 3600, Over: 1200}, "> 1 h"},
		{"e2e.max", plan.Value{Number: 3600}, "3,600 s"},
		{"gap.longest", plan.Value{}, "0 s"},
		{"connection.blocked", plan.Value{}, "0 s"},
		{"lost", plan.Value{}, "0"},
	} {
		if got := show(infos[c.name], c.v); got != c.want {
			t.Errorf("%s of %+v shows %q, want %q", c.name, c.v, got, c.want)
		}
	}
}
