package engine

import (
	"math"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// The number of unsent messages beyond the limit is calculated from the rate. The result and its ages are the same as
// if each message was counted. With Poisson arrivals, the standard deviation of the number is 0.3 %.
func TestUnsentMessagesBeyondTheLimitAreCounted(t *testing.T) {
	second := plan.Duration(time.Second)
	to := 20_000.0
	for name, test := range map[string]struct {
		change func(*plan.Publishers)
		part   float64 // permitted relative difference
	}{
		"even":    {func(*plan.Publishers) {}, 0},
		"Poisson": {func(p *plan.Publishers) { p.Arrivals = plan.ArrivalsPoisson }, 0.015},
		"profile": {func(p *plan.Publishers) {
			p.Rate, p.Profile = 0, []plan.Stage{{For: 4 * second, Rate: 5000, To: &to}, {For: 3 * second, Rate: 8000}}
		}, 0.001},
		"lifetime": {func(p *plan.Publishers) { p.Lifetime = plan.Lifetime{Stay: second, Away: second} }, 0.001},
		"count":    {func(p *plan.Publishers) { p.Count = 30_000 }, 0},
	} {
		count := func(limit int64) (int64, *record.Hist) {
			w := plan.Default()
			w.Warmup, w.Publishers.Rate = 0, 10_000
			test.change(&w.Publishers)
			line := newTimeline(w)
			line.set(0, int64(w.Measure))
			log := record.NewCollector(w.Measure.D())
			p := pacer{timeline: line, sends: log.Recorder(), count: w.Publishers.Count, maxUnsent: limit,
				due: w.Publishers.Due, schedule: newSchedule(w.Publishers, 0, 1, 0, 1),
				lifetime: newLifetime(line, w.Publishers.Lifetime, 0, 1, forever)}
			p.start()
			p.countUnsent(int64(15 * time.Second))
			p.sends.Flush()
			windows, _ := log.Take()
			n := int64(0)
			for _, w := range windows {
				n += w.Counts[record.Unsent]
			}
			return n, record.HistOf(record.UnsentAge, windows)
		}
		want, ages := count(1 << 40)
		got, rest := count(100)
		if math.Abs(float64(got-want)) > max(1, test.part*float64(want)) || rest.Count() != uint64(got) {
			t.Errorf("%s: got %d unsent, %d ages, want %d, and as many ages", name, got, rest.Count(), want)
		}
		for _, q := range []float64{0.01, 0.5, 0.99} {
			got, want := float64(rest.Quantile(q)), float64(ages.Quantile(q))
			if math.Abs(got-want) > max(0.003, 2*test.part)*want {
				t.Errorf("%s: quantile %v of the ages: got %v, want %v", name, q, time.Duration(got),
					time.Duration(want))
			}
		}
	}
}
