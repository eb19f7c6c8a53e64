package compare

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"lockstep/internal/plan"
)

// names lists the changes that are named: cell and value.
func names(c Comparison) (all []string) {
	for _, v := range c.Values {
		for _, r := range v.Rows {
			for _, x := range r.Changes {
				if f := x.Finding; f != Same {
					all = append(all, string(f)+" "+r.Name+" "+v.Name)
				}
			}
		}
	}
	return all
}

// TestPlantedShiftsAreNamed plants worse latencies in some cells and a better rate in one, and holds that exactly those are named.
func TestPlantedShiftsAreNamed(t *testing.T) {
	pairs := 20
	if os.Getenv("LOCKSTEP_LONG") != "" {
		pairs = 60
	}
	planted := func(c plan.Cell, value string) float64 {
		window := c.Workload.Publishers.Window
		switch {
		case value == "send.p99" && c.Broker.Name == "rabbit" && window < 103:
			return 1.4
		case value == "send.rate" && c.Broker.Name == "nats" && window == 105:
			return 1.2
		}
		return 1
	}
	want := []string{"better broker=nats window=105 send.rate", "worse broker=rabbit window=100 send.p99", "worse broker=rabbit window=101 send.p99", "worse broker=rabbit window=102 send.p99"}
	exact, missed, wrong := 0, 0, 0
	for seed := range uint64(pairs) {
		w := newWorld(seed, 8, 0.03)
		all := cells(10)
		c, err := Compare([]Recorded{w.run("a", all, nil), w.run("b", all, planted)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := names(c)
		for _, g := range got {
			if !slices.Contains(want, g) {
				wrong++
			}
		}
		for _, x := range want {
			if !slices.Contains(got, x) {
				missed++
			}
		}
		if slices.Equal(slices.Sorted(slices.Values(got)), want) {
			exact++
		}
	}
	t.Logf("of %d pairs of runs (20 cells, 2 values, 8 repetitions, noise 3 %%) with four planted changes exactly those are named in %d; missed %d of %d, named wrongly %d",
		pairs, exact, missed, 4*pairs, wrong)
	if exact < pairs*95/100 {
		t.Errorf("exactly the planted changes are named in %d of %d pairs", exact, pairs)
	}
}

// TestTheSameIsNoise compares runs with their own repeats, and halves of one run dealt anew: "~" throughout in at least 95 of 100 with noise of 5 %.
// With noise of 20 % the least effect keeps nothing out, and the family alone has to hold: in 95 of 100 in the mean.
func TestTheSameIsNoise(t *testing.T) {
	for _, c := range []struct {
		noise float64
		least int
	}{{0.05, 95}, {0.2, 95 - 7}} { // the latter less three standard errors
		repeats, halves, pairs := 0, 0, 40
		if os.Getenv("LOCKSTEP_LONG") != "" {
			pairs = 1000
		}
		whole := newWorld(5, 16, c.noise).run("a", cells(10), nil)
		for seed := range uint64(pairs) {
			w := newWorld(1000+seed, 8, c.noise)
			all := cells(10)
			if len(names(mustCompare(t, Options{}, w.run("a", all, nil), w.run("b", all, nil)))) == 0 {
				repeats++
			}
			a, b := parted(whole, rand.New(rand.NewPCG(seed, 1)))
			if len(names(mustCompare(t, Options{}, a, b))) == 0 {
				halves++
			}
		}
		t.Logf("noise %2.0f %% (20 cells, 2 values, 8 repetitions): ~ throughout in %d of %d pairs of equal runs, and in %d of as many partings of one run", 100*c.noise, repeats, pairs, halves)
		if least := c.least * pairs / 100; repeats < least || halves < least {
			t.Errorf("noise %2.0f %%: ~ throughout in %d and %d of %d, want %d", 100*c.noise, repeats, halves, pairs, least)
		}
	}
}

// parted deals the repetitions of each cell into two runs of half as many.
func parted(r Recorded, random *rand.Rand) (a, b Recorded) {
	a, b = Recorded{Run: r.Run}, Recorded{Run: r.Run}
	a.Run.Repeat, b.Run.Repeat = r.Run.Repeat/2, r.Run.Repeat/2
	for i := 0; i < len(r.Outcomes); i += r.Run.Repeat {
		for k, j := range random.Perm(r.Run.Repeat) {
			if o := r.Outcomes[i+j]; k%2 == 0 {
				a.Outcomes = append(a.Outcomes, o)
			} else {
				b.Outcomes = append(b.Outcomes, o)
			}
		}
	}
	return a, b
}

// TestSmallChangesAreNotNamed: two per cent are certain with little noise, and not named.
func TestSmallChangesAreNotNamed(t *testing.T) {
	w := newWorld(1, 10, 0.002)
	all := cells(3)
	two := func(plan.Cell, string) float64 { return 1.02 }
	runs := []Recorded{w.run("a", all, nil), w.run("b", all, two)}
	c, err := Compare(runs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(c); len(got) != 0 {
		t.Errorf("named although below 5 %%: %v", got)
	}
	if x := c.Values[0].Rows[0].Changes[0]; x.Adjusted > 0.05 || x.Ratio.Estimate < 1.015 {
		t.Errorf("2 %% with noise of 0.2 %% have to be seen: %+v", x)
	}
	c, err = Compare(runs, Options{Effect: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Found(); n[Better] != 6 || n[Worse] != 6 {
		t.Errorf("with a least effect of 1 %% rates are better and latencies worse in all cells, found %v", n)
	}
}
