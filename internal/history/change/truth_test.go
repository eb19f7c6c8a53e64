package change

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// world makes series of cells whose truth is known.
type world struct {
	name  string
	noise func(r *rand.Rand, n int) []float64 // of n runs, in parts
	plant func(r *rand.Rand, xs []float64)    // nil: nothing
	most  float64                             // nights with any alarm, in parts, beyond which the test fails
}

func normal(r *rand.Rand, n int) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = 0.03 * r.NormFloat64()
	}
	return xs
}

// student is Student's t with so many degrees of freedom, brought to 3 % of standard deviation.
func student(freedom int) func(*rand.Rand, int) []float64 {
	return func(r *rand.Rand, n int) []float64 {
		xs := make([]float64, n)
		for i := range xs {
			chi := 0.0
			for range freedom {
				x := r.NormFloat64()
				chi += x * x
			}
			xs[i] = 0.03 * r.NormFloat64() / math.Sqrt(chi/float64(freedom)) * math.Sqrt(float64(freedom-2)/float64(freedom))
		}
		return xs
	}
}

// skewed is lognormal, brought to 3 % of standard deviation: the highest run of a hundred is twice as far off as the lowest.
func skewed(r *rand.Rand, n int) []float64 {
	const shape = 0.5
	mean, sd := math.Exp(shape*shape/2), math.Sqrt((math.Exp(shape*shape)-1)*math.Exp(shape*shape))
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = 0.03 * (math.Exp(shape*r.NormFloat64()) - mean) / sd
	}
	return xs
}

// contaminated has an outlier of 50 %, up or down, in one run of a hundred.
func contaminated(r *rand.Rand, n int) []float64 {
	xs := normal(r, n)
	for i := range xs {
		if r.IntN(100) == 0 {
			xs[i] += float64(r.IntN(2)) - 0.5
		}
	}
	return xs
}

// mixed has tails of t(3) in one series of five, and normal noise in the others.
func mixed(r *rand.Rand, n int) []float64 {
	if r.IntN(5) == 0 {
		return student(3)(r, n)
	}
	return normal(r, n)
}

// sticky has every run resemble the one before by so much.
func sticky(like float64) func(*rand.Rand, int) []float64 {
	return func(r *rand.Rand, n int) []float64 {
		xs := normal(r, n)
		for i := 1; i < n; i++ {
			xs[i] = like*xs[i-1] + math.Sqrt(1-like*like)*xs[i]
		}
		return xs
	}
}

// unlike has cells of very different noise, 1 % to 10 %.
func unlike(r *rand.Rand, n int) []float64 {
	xs, by := normal(r, n), math.Pow(10, r.Float64())/3
	for i := range xs {
		xs[i] *= by
	}
	return xs
}

// outliers puts a lone one of 50 % into the newest runs of one series of a hundred, and into one of four elsewhere.
func outliers(r *rand.Rand, xs []float64) {
	if r.IntN(100) == 0 {
		xs[len(xs)-1-r.IntN(newest)] *= 1.5 - float64(r.IntN(2))
	}
	if r.IntN(4) == 0 {
		xs[r.IntN(len(xs)-newest)] *= 1.5
	}
}

const cells, nightsBefore = 200, 90

// series is a cell's history.
func (w world) series(r *rand.Rand) []float64 {
	xs := w.noise(r, nightsBefore+newest)
	for i, x := range xs {
		xs[i] = 1000 * (1 + x)
	}
	if w.plant != nil {
		w.plant(r, xs)
	}
	return xs
}

// What the alarm does where the truth is known. LOCKSTEP_LONG has it do so over 1,000 nights; docs/history.md has the figures.
func TestNightsOfKnownTruth(t *testing.T) {
	nights, slack := 3, 0.3 // of so few nights
	if os.Getenv("LOCKSTEP_LONG") != "" {
		nights, slack = 1000, 0
	}
	for i, w := range []world{
		{"stable, normal noise of 3 %", normal, nil, 0.05},
		{"stable, noise of 1 to 10 %", unlike, nil, 0.05},
		{"stable, lone outliers of 50 %", normal, outliers, 0.05},
		{"stable, tails of Student's t(5)", student(5), nil, 0.05},
		{"stable, tails of Student's t(3)", student(3), nil, 0.05},
		{"stable, t(3) in one cell of five", mixed, nil, 0.05},
		{"stable, lognormal", skewed, nil, 0.05},
		{"stable, outliers in 1 % of runs", contaminated, nil, 0.05},
		{"stable, autocorrelation 0.3", sticky(0.3), nil, 1},
		{"stable, autocorrelation 0.6", sticky(0.6), nil, 1},
		{"drift, 0.1 % a night", normal, func(_ *rand.Rand, xs []float64) {
			for i := range xs {
				xs[i] *= 1 + 0.001*float64(i)
			}
		}, 1},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			n := nights
			if w.most == 1 {
				n = max(nights/10, 1)
			}
			loud, raised := w.loud(rand.New(rand.NewPCG(2026, uint64(i))), n)
			t.Logf("%-34s %4d nights of %d cells: %5.1f %% with any alarm, %d alarms", w.name+":", n, cells, 100*float64(loud)/float64(n), raised)
			if part := float64(loud) / float64(n); part > w.most+slack {
				t.Errorf("any alarm in %.1f %% of nights: want at most %.0f", 100*part, 100*w.most)
			}
		})
	}
}

// loud makes nights, and counts those with any alarm, and the alarms.
func (w world) loud(r *rand.Rand, nights int) (loud, raised int) {
	for range nights {
		night := make([][]float64, cells)
		for i := range night {
			night[i] = w.series(r)
		}
		if alarms, _ := Alarms(night); len(alarms) > 0 {
			loud++
			raised += len(alarms)
		}
	}
	return loud, raised
}

// Steps are found in the second or the third night.
func TestStepsOfKnownTruth(t *testing.T) {
	nights, slack := 1, 0.3 // of so few
	if os.Getenv("LOCKSTEP_LONG") != "" {
		nights, slack = 25, 0
	}
	r := rand.New(rand.NewPCG(2026, 2))
	for _, by := range []float64{1.10, 0.90, 1.08, 1.05} {
		if slack > 0 && by != 1.10 {
			continue
		}
		found, of := caught(r, by, nights)
		t.Logf("step of %+.0f %%, noise of 3 %%: found within 3 nights in %.1f %% of %d", 100*(by-1), 100*found/of, int(of))
		if by == 1.10 && found/of < 0.95-slack/2 {
			t.Errorf("want 95 %%")
		}
	}
}

// caught counts the series of nights in which one of five cells has had a step, for two nights or for three, that raise an alarm.
func caught(r *rand.Rand, by float64, nights int) (found, of float64) {
	w := world{noise: normal}
	for range nights {
		told := map[int]bool{}
		all := make([][]float64, cells)
		for i := range all {
			all[i] = w.series(r)
			for k := nightsBefore; i%5 == 0 && k < nightsBefore+newest; k++ {
				all[i][k] *= by
			}
		}
		for _, night := range []int{2, 3} {
			seen := make([][]float64, cells)
			for i, s := range all {
				seen[i] = s[:nightsBefore+night]
			}
			alarms, _ := Alarms(seen)
			for _, a := range alarms {
				told[a.Series] = told[a.Series] || a.Series%5 == 0
			}
		}
		for _, is := range told {
			if is {
				found++
			}
		}
		of += cells / 5
	}
	return found, of
}
