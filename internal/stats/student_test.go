package stats

import (
	"math"
	"testing"
)

// The quantiles are those of published tables (Abramowitz and Stegun, table 26.10; the last row is the normal distribution's).
func TestStudentQuantiles(t *testing.T) {
	above := []float64{0.25, 0.05, 0.025, 0.01, 0.005, 0.0005}
	for degrees, want := range map[int][]float64{
		1:   {1.000, 6.314, 12.706, 31.821, 63.657, 636.619},
		2:   {0.816, 2.920, 4.303, 6.965, 9.925, 31.598},
		3:   {0.765, 2.353, 3.182, 4.541, 5.841, 12.924},
		5:   {0.727, 2.015, 2.571, 3.365, 4.032, 6.869},
		9:   {0.703, 1.833, 2.262, 2.821, 3.250, 4.781},
		30:  {0.683, 1.697, 2.042, 2.457, 2.750, 3.646},
		120: {0.677, 1.658, 1.980, 2.358, 2.617, 3.373},
	} {
		for i, p := range above {
			if got := StudentQuantile(p, degrees); math.Abs(got-want[i]) > 0.0011*max(1, want[i]) {
				t.Errorf("%d degrees, %g above: %.4f, want %.3f", degrees, p, got, want[i])
			}
		}
	}
	for p, want := range map[float64]float64{0.5: 0, 0.05: 1.645, 0.025: 1.960, 0.005: 2.576, 1e-6: 4.753} {
		if got := NormalQuantile(p); math.Abs(got-want) > 0.0006 {
			t.Errorf("normal, %g above: %.4f, want %.3f", p, got, want)
		}
	}
}
