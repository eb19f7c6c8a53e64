package change

import (
	"math"
	"math/rand/v2"
	"testing"
)

// nile is the yearly flow of the Nile at Aswan, 1871 to 1970, in 10^8 m³, as Cobb (Biometrika, 1978) published it. The literature agrees on one
// change: from 1899 on there was less.
var nile = []float64{1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180, 799, 958, 1140, 1100, 1210, 1150, 1250,
	1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833, 701, 916, 692, 1020, 1050, 969, 831, 726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845, 864,
	862, 698, 845, 744, 796, 1040, 759, 781, 865, 845, 944, 984, 897, 822, 1010, 771, 676, 649, 846, 812, 742, 801, 1040, 860, 874, 848, 890, 744, 749, 838,
	1050, 918, 986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740}

func TestNile(t *testing.T) {
	changes := Points(nile, 0)
	if len(changes) != 1 || changes[0].At != 1899-1871 {
		t.Fatalf("changes %+v: want one, in 1899", changes)
	}
	if c := changes[0]; c.P > Level || c.Shift() > -0.15 || c.Shift() < -0.30 {
		t.Errorf("%+v, by %.3f: want it sure, and about 23 %% less", c, c.Shift())
	}
}

// The energy statistic of a small part, computed by hand from its definition.
func TestEnergyIsThatOfItsDefinition(t *testing.T) {
	part := []float64{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	at, most := newEnergy(part).clearest()
	wantAt, want := 0, math.Inf(-1)
	pairs := func(a []float64) (sum float64) {
		for i := range a {
			for j := range i {
				sum += math.Abs(a[i] - a[j])
			}
		}
		return sum
	}
	for cut := segment; cut <= len(part)-segment; cut++ {
		l, r := part[:cut], part[cut:]
		n, m := float64(len(l)), float64(len(r))
		q := n * m / (n + m) * (2/(n*m)*(pairs(part)-pairs(l)-pairs(r)) - pairs(l)/(n*(n-1)/2) - pairs(r)/(m*(m-1)/2))
		if q > want {
			wantAt, want = cut, q
		}
	}
	if at != wantAt || math.Abs(most-want) > 1e-9 {
		t.Errorf("%d %.9f: want %d %.9f", at, most, wantAt, want)
	}
}

func TestSpecialFunctions(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"digamma(1)", digamma(1), -0.5772156649},
		{"digamma(10)", digamma(10), 2.2517525891},
		{"trigamma(1)", trigamma(1), math.Pi * math.Pi / 6},
		{"trigamma(0.5)", trigamma(0.5), math.Pi * math.Pi / 2},
		{"inverse", trigamma(inverseTrigamma(0.3)), 0.3},
		{"t(4), 2.776", upper(2.776445, 4), 0.025},
		{"t(30), 3.385", upper(3.385185, 30), 0.001},
		{"t(1), -1", upper(-1, 1), 0.75},
		{"normal, 1.96", upper(1.959964, math.Inf(1)), 0.025},
	} {
		if math.Abs(c.got-c.want) > 1e-6 {
			t.Errorf("%s = %.9f, want %.9f", c.name, c.got, c.want)
		}
	}
}

func noisy(r *rand.Rand, n int, sd float64) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = 1000 * (1 + sd*r.NormFloat64())
	}
	return xs
}

func TestStepsAndOutliersInAHistory(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	falseOnes, outliers, near := 0, 0, 0
	const n = 40
	for range n {
		falseOnes += len(Points(noisy(r, 60, 0.03), 0.02))
		lone := noisy(r, 60, 0.03)
		lone[r.IntN(60)] *= 1.5
		lone[r.IntN(60)] *= 0.5
		outliers += len(Points(lone, 0.02))
		two := noisy(r, 60, 0.03)
		for i := 25; i < 60; i++ {
			two[i] *= 1.1
		}
		for i := 45; i < 60; i++ {
			two[i] *= 1.1
		}
		two[10] *= 1.5
		if c := Points(two, 0.02); len(c) == 2 && abs(c[0].At-25) <= 2 && abs(c[1].At-45) <= 2 {
			near++
		}
	}
	t.Logf("of %d histories of 60 runs with 3 %% noise: changes found where none is %d; with two lone outliers of 50 %% %d; both steps of 10 %% found, to two runs: %d", n, falseOnes, outliers, near)
	if falseOnes > 3 || outliers > 3 || near < n*9/10 {
		t.Error("want hardly any of the first two, and nearly all of the last")
	}
}

func abs(n int) int { return max(n, -n) }

func TestConstantAndShortSeries(t *testing.T) {
	if c := Points([]float64{5, 5, 5, 5, 5, 5, 5, 5}, 0); len(c) > 0 {
		t.Errorf("a constant changes: %+v", c)
	}
	if c := Points([]float64{5, 5, 5, 9, 9}, 0); len(c) > 0 {
		t.Errorf("five runs are too few: %+v", c)
	}
	zeros := make([]float64, 30)
	zeros[17] = 4
	if c := Points(zeros, 0); len(c) > 0 {
		t.Errorf("one lost message is no level: %+v", c)
	}
	if a, untold := Alarms([][]float64{zeros, {1, 2, 3}}); len(a) > 0 || untold != 2 {
		t.Errorf("%v, %d untold: want both", a, untold)
	}
	if Points(nil, 0) != nil {
		t.Error("nothing changes in nothing")
	}
}
