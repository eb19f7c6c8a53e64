package display

import (
	"math"
	"testing"
	"time"
)

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 3: "3", 19.46: "19.5", 100: "100", 999.6: "1,000", 1234567: "1,234,567", -20050: "-20,050",
		0.25: "0.25",
	} {
		if got := Number(x); got != want {
			t.Errorf("Number(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 cells", 1: "1 cell", 2411: "2,411 cells"} {
		if got := Count(n, "cell"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 90400 * time.Millisecond: "1m30s", 47*time.Hour + time.Minute: "47h1m0s",
		52*time.Hour + 59*time.Minute: "2d4h",
	} {
		if got := Elapsed(d); got != want {
			t.Errorf("Elapsed(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestChangeFromZero(t *testing.T) {
	for _, x := range []float64{math.Inf(1), math.NaN()} {
		if got := Change(x); got != "from zero" {
			t.Errorf("Change(%v) = %q", x, got)
		}
	}
}

func TestChangesAreWritten(t *testing.T) {
	for x, want := range map[float64]string{0.0374: "+3.7 %", -0.5: "-50 %", 11: "×12.0", 0.0001: "0 %",
		0.0996: "+10 %"} {
		if got := Change(x); got != want {
			t.Errorf("%v is written %q, want %q", x, got, want)
		}
	}
}

func TestPlusMinus(t *testing.T) {
	for _, c := range []struct {
		x, bound float64
		want     string
	}{
		{1.8e-3, 0, ""},
		{1.8e-3, 0.3e-3, "± 0.3"},
		{1.8e-3, 0.301e-3, "± 0.31"}, // rounded up
		{1.8e-3, 12e-3, "± 12"},
		{1.8e-3, 21e-6, "± 0.021"},
		{1.8e-3, 3e-6, "± 3.00 µs"},
		{850e-6, 36.4e-6, "± 37"},
		{2, 150e-6, "± 150 µs"},
		{42e-9, 1e-6, "± 1.00 µs"},
		{0, 50e-6, "± 50.0 µs"},
	} {
		if got := PlusMinus(c.x, c.bound); got != c.want {
			t.Errorf("PlusMinus(%v, %v) = %q, want %q", c.x, c.bound, got, c.want)
		}
	}
}
