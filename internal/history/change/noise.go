package change

import "math"

// prior is the noise that the series of a night have in common: an inverse gamma distribution of their variances.
type prior struct {
	variance float64
	freedom  float64 // 0: nothing is known; infinite: all are equally noisy
}

// kinship learns from all series how noisy one is (Smyth, Linear models and empirical Bayes methods, 2004), and how much runs resemble those before.
func kinship(levels []level) (common prior, alike float64) {
	var logs, doubts []float64
	runs := 0.0
	for _, l := range levels {
		if l.n == 0 || l.variance <= 0 {
			continue
		}
		half := l.freedom / 2
		logs = append(logs, math.Log(l.variance)-digamma(half)+math.Log(half))
		doubts = append(doubts, trigamma(half))
		alike += l.like + 1/float64(l.n) // corrected for its bias
		runs += float64(l.n)
	}
	if len(logs) < kindred {
		return prior{}, 0
	}
	count := float64(len(logs))
	if alike /= count; alike < 2/math.Sqrt(runs) {
		alike = 0
	}
	mean, spread := 0.0, 0.0
	for _, x := range logs {
		mean += x / count
	}
	for i, x := range logs {
		spread += (x-mean)*(x-mean)/(count-1) - doubts[i]/count
	}
	if spread <= 0 {
		return prior{math.Exp(mean), math.Inf(1)}, alike
	}
	half := inverseTrigamma(spread)
	return prior{math.Exp(mean + digamma(half) - math.Log(half)), 2 * half}, alike
}

// digamma is the derivative of the logarithm of the gamma function.
func digamma(x float64) (y float64) {
	for ; x < 10; x++ {
		y -= 1 / x
	}
	z := 1 / (x * x)
	return y + math.Log(x) - 1/(2*x) - z*(1.0/12-z*(1.0/120-z/252))
}

// trigamma is the derivative of digamma.
func trigamma(x float64) (y float64) {
	for ; x < 10; x++ {
		y += 1 / (x * x)
	}
	z := 1 / (x * x)
	return y + 1/x + z/2 + z/x*(1.0/6-z*(1.0/30-z/42))
}

// inverseTrigamma solves trigamma(x) = y for x by halving: trigamma falls.
func inverseTrigamma(y float64) float64 {
	low, high := math.Log(1e-6), math.Log(1e8)
	for range 60 {
		if middle := (low + high) / 2; trigamma(math.Exp(middle)) > y {
			low = middle
		} else {
			high = middle
		}
	}
	return math.Exp(low)
}

// upper is the probability that Student's t with so many degrees of freedom is above x.
func upper(x, freedom float64) float64 {
	if math.IsInf(freedom, 1) || freedom > 1e7 {
		return math.Erfc(x/math.Sqrt2) / 2
	}
	tail := incompleteBeta(freedom/(freedom+x*x), freedom/2, 0.5) / 2
	if x < 0 {
		return 1 - tail
	}
	return tail
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
