package stats

import "math"

// StudentT returns the probability that Student's t is at most t (Student 1908). freedom is the number of degrees of
// freedom; it must be above 0 and need not be whole.
func StudentT(t, freedom float64) float64 {
	switch {
	case math.IsInf(t, -1):
		return 0
	case math.IsInf(t, 1):
		return 1
	}
	tail := incompleteBeta(freedom/2, 0.5, freedom/(freedom+t*t)) / 2
	if t > 0 {
		return 1 - tail
	}
	return tail
}

// StudentQuantile returns the t below which Student's t lies with probability p, 0 < p < 1. It uses bisection, to 12
// digits.
func StudentQuantile(p, freedom float64) float64 {
	if p < 0.5 {
		return -StudentQuantile(1-p, freedom)
	}
	low, high := 0.0, 1.0
	for StudentT(high, freedom) < p && !math.IsInf(high, 1) {
		high *= 2
	}
	for range 200 {
		middle := low + (high-low)/2
		if StudentT(middle, freedom) < p {
			low = middle
		} else {
			high = middle
		}
		if high-low <= 1e-12*high {
			break
		}
	}
	return high
}

// incompleteBeta returns the regularised incomplete beta function of x. It evaluates the continued fraction of the NIST
// Digital Library of Mathematical Functions, 8.17.22, with the method of Lentz (3.10(iii)).
func incompleteBeta(a, b, x float64) float64 {
	if x <= 0 || x >= 1 {
		return min(max(x, 0), 1)
	}
	if x > (a+1)/(a+b+2) { // the fraction of the complement converges faster
		return 1 - incompleteBeta(b, a, 1-x)
	}
	// value is the fraction so far, the product of the ratios numerator * denominator.
	value, numerator, denominator := 1.0, 1.0, 0.0
	step := func(coefficient float64) float64 {
		numerator, denominator = 1+coefficient/numerator, 1/(1+coefficient*denominator)
		value *= numerator * denominator
		return numerator * denominator
	}
	for m := range 10_000 {
		m := float64(m)
		step(-(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1)))
		ratio := step((m + 1) * (b - m - 1) * x / ((a + 2*m + 1) * (a + 2*m + 2)))
		if math.Abs(ratio-1) < 1e-15 {
			break
		}
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	return math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / (a * value)
}

// NormalQuantile returns the number that a standard normal variable exceeds with probability above.
func NormalQuantile(above float64) float64 { return -math.Sqrt2 * math.Erfinv(2*above-1) }
