package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

func withRate(rate float64) plan.Publishers { return plan.Publishers{Rate: rate} }

func withProfile(stages ...plan.Stage) plan.Publishers { return plan.Publishers{Profile: stages} }

func constantRate(d time.Duration, rate float64) plan.Stage {
	return plan.Stage{For: plan.Duration(d), Rate: rate}
}

func ramp(d time.Duration, from, to float64) plan.Stage {
	return plan.Stage{For: plan.Duration(d), Rate: from, To: &to}
}

// dueBefore returns the intended send times of all k publishers before end, in order.
func dueBefore(t *testing.T, p plan.Publishers, warmup, end time.Duration, k int) []time.Duration {
	t.Helper()
	var all []time.Duration
	for i := range k {
		s, last := newSchedule(p, warmup, 1, i, k), time.Duration(-1)
		for at := s.Next(); at < end; at = s.Next() {
			if at < last {
				t.Fatalf("publisher %d: got intended send time %v after %v, want ascending times", i, at, last)
			}
			all, last = append(all, at), at
		}
	}
	slices.Sort(all)
	return all
}

// countBetween returns the number of times in [from, to).
func countBetween(due []time.Duration, from, to time.Duration) int {
	a, _ := slices.BinarySearch(due, from)
	b, _ := slices.BinarySearch(due, to)
	return b - a
}

// The union of the publishers' schedules is that of the cell: one message every 1/rate, none twice, none missing.
func TestUniformSharesOneSchedule(t *testing.T) {
	const rate, publishers = 3000.0, 7
	due := dueBefore(t, withRate(rate), time.Second, time.Second, publishers)
	if len(due) != rate {
		t.Fatalf("messages due in a second: got %d, want %v", len(due), rate)
	}
	for n, at := range due {
		if want := time.Duration(n) * time.Second / rate; at != want {
			t.Fatalf("intended send time of message %d: got %v, want %v", n, at, want)
		}
	}
}

// A sum of rounded periods would drift. After 50 days every message still has its exact intended send time.
func TestSchedulesDoNotDrift(t *testing.T) {
	const days = 50 * 24 * time.Hour
	for name, x := range map[string]struct {
		p      plan.Publishers
		second uint64 // mean number of messages per second
		gap    time.Duration
	}{
		"uniform": {withRate(100_000), 100_000, 10 * time.Microsecond},
		"profile": {withProfile(constantRate(time.Second, 150_000), constantRate(time.Second, 50_000)), 100_000,
			time.Second / 150_000},
		"burst": {withProfile(constantRate(time.Second, 150_001), constantRate(9*time.Second, 1)), 15_001,
			time.Second / 150_001},
	} {
		s := newSchedule(x.p, 0, 1, 0, 1)
		for day := days / 50; day <= days; day += days / 50 {
			s.next = x.second * uint64(day/time.Second)
			if x.second == 15_001 { // 150,010 in ten seconds
				s.next = 150_010 * uint64(day/(10*time.Second))
			}
			if at := s.Next(); (at - day).Abs() > 1 {
				t.Errorf("%s: intended send time after %v: got a difference of %v, want at most 1 ns", name, day,
					at-day)
			}
			if at := s.Next(); (at - day - x.gap).Abs() > 1 {
				t.Errorf("%s: next message after %v: got a gap of %v, want %v", name, day, at-day, x.gap)
			}
		}
	}
}

func TestProfileSendsExactlyItsStages(t *testing.T) {
	p := withProfile(constantRate(9*time.Second, 1000), constantRate(2*time.Second, 0), ramp(4*time.Second, 100, 900),
		ramp(2*time.Second, 300, 0), constantRate(time.Second, 20_000))
	const warmup, length = 3 * time.Second, 18 * time.Second
	for _, k := range []int{1, 4, 7} {
		due := dueBefore(t, p, warmup, warmup+3*length, k)
		if n := countBetween(due, 0, warmup); n != 3000 {
			t.Errorf("%d publishers: messages in 3 s of warm-up: got %d, want 3000: the rate of the first stage", k, n)
		}
		for round := range 3 {
			at := warmup + time.Duration(round)*length
			for i, want := range []int{9000, 0, 2000, 300, 20_000} {
				d := p.Profile[i].For.D()
				if n := countBetween(due, at, at+d); n != want {
					t.Errorf("%d publishers, round %d, stage %d: got %d messages, want %d", k, round, i, n, want)
				}
				at += d
			}
		}
		if want := int(p.Due(3*length)) + 3000; len(due) != want {
			t.Errorf("%d publishers: total messages: got %d, want %d as calculated by Due", k, len(due), want)
		}
	}
}

// At every time of a ramp, the number of due messages is the integral of the rate.
func TestRampFollowsTheIntegral(t *testing.T) {
	for _, x := range []struct{ from, to float64 }{{0, 10_000}, {10_000, 0}, {500, 9500}, {9500, 500}, {3, 3}} {
		p := withProfile(ramp(7*time.Second, x.from, x.to))
		due := dueBefore(t, p, 0, 7*time.Second, 3)
		for n, at := range due {
			s := at.Seconds()
			if integral := x.from*s + (x.to-x.from)/14*s*s; math.Abs(integral-float64(n)) > 1e-3 {
				t.Fatalf("ramp from %v to %v: integral of the rate when message %d is due: got %v, want %[3]d", x.from,
					x.to, n, integral)
			}
		}
		if want := (x.from + x.to) / 2 * 7; math.Abs(float64(len(due))-want) > 1 {
			t.Errorf("ramp from %v to %v: got %d messages, want %v", x.from, x.to, len(due), want)
		}
	}
}

func TestProfileWithRateZeroIsNeverDue(t *testing.T) {
	if at := newSchedule(withProfile(constantRate(time.Second, 0)), time.Second, 1, 0, 1).Next(); at != math.MaxInt64 {
		t.Errorf("profile with rate 0: got intended send time %v, want never", at)
	}
	if s := newSchedule(plan.Publishers{}, 0, 1, 0, 1); s != nil {
		t.Errorf("closed loop: got schedule %v, want nil", s)
	}
}

func poissonGaps(i, k, n int, rate float64, task uint64) []float64 {
	p := withRate(rate)
	p.Arrivals = plan.ArrivalsPoisson
	s := newSchedule(p, 0, task, i, k)
	gaps, last := make([]float64, n), time.Duration(0)
	for j := range gaps {
		at := s.Next()
		gaps[j], last = (at-last).Seconds()*rate/float64(k), at // in units of the mean gap
	}
	return gaps
}

// Gaps of a Poisson process are exponential: mean 1, variance 1, and a Kolmogorov–Smirnov distance below the critical
// value for α = 0.001. The seed is fixed, so the result is always the same.
func TestPoissonGapsAreExponential(t *testing.T) {
	const n = 200_000
	for i := range 3 {
		gaps := poissonGaps(i, 3, n, 5000, 42)
		mean, variance := moments(gaps)
		if math.Abs(mean-1) > 4/math.Sqrt(n) || math.Abs(variance-1) > 4*math.Sqrt(8.0/n) {
			t.Errorf("publisher %d: got mean %v, variance %v, want 1, 1", i, mean, variance)
		}
		slices.Sort(gaps)
		worst := 0.0
		for j, g := range gaps {
			f := 1 - math.Exp(-g)
			worst = max(worst, math.Abs(f-float64(j)/n), math.Abs(f-float64(j+1)/n))
		}
		if bound := 1.95 / math.Sqrt(n); worst > bound {
			t.Errorf("publisher %d: distance to the exponential distribution: got %v, want at most %v", i, worst, bound)
		}
	}
}

// Streams of different publishers and tasks are independent. The stream of one publisher is reproducible.
func TestPoissonStreamsAreIndependent(t *testing.T) {
	const n = 100_000
	first := poissonGaps(0, 2, n, 1000, 42)
	for name, other := range map[string][]float64{"publisher": poissonGaps(1, 2, n, 1000, 42),
		"task": poissonGaps(0, 2, n, 1000, 43)} {
		if r := correlation(first, other); math.Abs(r) > 4/math.Sqrt(n) {
			t.Errorf("another %s: got correlation %v, want about 0", name, r)
		}
	}
	if r := correlation(first[:n-1], first[1:]); math.Abs(r) > 4/math.Sqrt(n) {
		t.Errorf("successive gaps: got correlation %v, want about 0", r)
	}
	if again := poissonGaps(0, 2, n, 1000, 42); !slices.Equal(first, again) {
		t.Error("same publisher and task: got a different schedule")
	}
}

// With a rate profile, the counts per stage are Poisson, with the integral of the stage as the mean.
func TestPoissonFollowsTheProfile(t *testing.T) {
	p := withProfile(constantRate(2*time.Second, 20_000), constantRate(time.Second, 0), ramp(2*time.Second, 0, 50_000))
	p.Arrivals = plan.ArrivalsPoisson
	due := dueBefore(t, p, time.Second, 11*time.Second, 5)
	for _, x := range []struct {
		from, to time.Duration
		mean     float64
	}{{0, 1, 20_000}, {1, 3, 40_000}, {3, 4, 0}, {4, 5, 12_500}, {5, 6, 37_500}, {6, 8, 40_000}, {8, 9, 0},
		{9, 10, 12_500}} {
		if n := float64(countBetween(due, x.from*time.Second,
			x.to*time.Second)); math.Abs(n-x.mean) > 4*math.Sqrt(x.mean) {
			t.Errorf("from %v to %v s: got %v messages, want %v ± 4 standard deviations", int(x.from), int(x.to), n,
				x.mean)
		}
	}
}

func moments(x []float64) (mean, variance float64) {
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for _, v := range x {
		variance += (v - mean) * (v - mean)
	}
	return mean, variance / float64(len(x)-1)
}

func correlation(x, y []float64) (r float64) {
	mx, vx := moments(x)
	my, vy := moments(y)
	for i := range x {
		r += (x[i] - mx) * (y[i] - my)
	}
	return r / float64(len(x)-1) / math.Sqrt(vx*vy)
}

func BenchmarkSchedule(b *testing.B) {
	poisson := withRate(1000)
	poisson.Arrivals = plan.ArrivalsPoisson
	for name, p := range map[string]plan.Publishers{"even": withRate(1000), "poisson": poisson,
		"profile": withProfile(constantRate(time.Second, 1000), ramp(time.Second, 1000, 5000))} {
		b.Run(fmt.Sprint(name), func(b *testing.B) {
			s := newSchedule(p, 0, 1, 0, 4)
			b.ReportAllocs()
			for b.Loop() {
				sink = int64(s.Next())
			}
		})
	}
}
