package change

import "math"

// studentTail is the probability that Student's t with so many degrees of freedom is above x.
func studentTail(x, freedom float64) float64 {
	return incompleteBeta(freedom/(freedom+x*x), freedom/2, 0.5) / 2
}

// incompleteBeta is the regularized incomplete beta function, by its continued fraction (Lentz).
func incompleteBeta(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2):
		return 1 - incompleteBeta(1-x, b, a)
	}
	ga, _ := math.Lgamma(a)
	gb, _ := math.Lgamma(b)
	gab, _ := math.Lgamma(a + b)
	front := math.Exp(gab-ga-gb+a*math.Log(x)+b*math.Log1p(-x)) / a
	const tiny = 1e-300
	c, d := 1.0, 1/orTiny(1-(a+b)*x/(a+1), tiny)
	f := d
	for m := 1.0; m < 500; m++ {
		for _, k := range []float64{m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m)), -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))} {
			d = 1 / orTiny(1+k*d, tiny)
			c = orTiny(1+k/c, tiny)
			f *= c * d
		}
		if math.Abs(c*d-1) < 1e-14 {
			break
		}
	}
	return front * f
}

func orTiny(x, tiny float64) float64 {
	if math.Abs(x) < tiny {
		return tiny
	}
	return x
}
