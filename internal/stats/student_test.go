package stats

import (
	"math"
	"testing"
)

// TestStudentAgainstTables compares probabilities and quantiles with published tables of Student's t-distribution, and
// with the closed forms for 1 and 2 degrees of freedom.
func TestStudentAgainstTables(t *testing.T) {
	for _, c := range []struct{ p, freedom, t float64 }{{0.95, 4, 2.131847}, {0.975, 4, 2.776445},
		{0.975, 10, 2.228139}, {0.995, 30, 2.749996}, {0.9995, 3, 12.923979}, {0.975, 1e6, 1.959966}} {
		near(t, "quantile", StudentQuantile(c.p, c.freedom), c.t, 2e-6)
		near(t, "the other side", StudentQuantile(1-c.p, c.freedom), -c.t, 2e-6)
		near(t, "probability", StudentT(c.t, c.freedom), c.p, 1e-6)
	}
	for _, x := range []float64{-30, -3, -0.4, 0, 0.1, 2, 400} {
		near(t, "Cauchy", StudentT(x, 1), 0.5+math.Atan(x)/math.Pi, 1e-12)
		near(t, "two degrees of freedom", StudentT(x, 2), 0.5+x/2/math.Sqrt(2+x*x), 1e-12)
	}
	if StudentT(math.Inf(1), 4) != 1 || StudentT(math.Inf(-1), 4) != 0 {
		t.Error("the ends have no probability of 0 and 1")
	}
}
