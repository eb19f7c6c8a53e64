package stats

import "math"

// StudentQuantile is the number that a variable with Student's t distribution of so many degrees of freedom (1 or more) exceeds with probability
// above, which is between 0 and 0.5. From three degrees on it has six digits: Hill, Algorithm 396: Student's t-quantiles, Communications of the
// ACM 13, 1970.
func StudentQuantile(above float64, degrees int) float64 {
	p, n := 2*above, float64(degrees)
	switch degrees {
	case 1:
		return 1 / math.Tan(p*math.Pi/2)
	case 2:
		return math.Sqrt(2/(p*(2-p)) - 2)
	}
	a := 1 / (n - 0.5)
	b := 48 / (a * a)
	c := ((20700*a/b-98)*a-16)*a + 96.36
	d := ((94.5/(b+c)-3)/b + 1) * math.Sqrt(a*math.Pi/2) * n
	y := math.Pow(d*p, 2/n)
	if y <= 0.05+a {
		y = ((1/(((n+6)/(n*y)-0.089*d-0.822)*(n+2)*3)+0.5/(n+4))*y-1)*(n+1)/(n+2) + 1/y
		return math.Sqrt(n * y)
	}
	x := -NormalQuantile(above)
	y = x * x
	if n < 5 {
		c += 0.3 * (n - 4.5) * (x + 0.6)
	}
	c += (((0.05*d*x-5)*x-7)*x-2)*x + b
	y = (((((0.4*y+6.3)*y+36)*y+94.5)/c-y-3)/b + 1) * x
	return math.Sqrt(n * math.Expm1(a*y*y))
}

// NormalQuantile is the number that a standard normal variable exceeds with probability above.
func NormalQuantile(above float64) float64 { return -math.Sqrt2 * math.Erfinv(2*above-1) }
