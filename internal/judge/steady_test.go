package judge

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// warmupModel describes a load with a known rate and latency by time, and noise.
type warmupModel struct {
	name  string
	rate  func(t float64) float64 // messages per second
	delay func(t float64) float64 // seconds; nil: constant
	noise float64                 // relative standard deviation of rate and latency, independently
	count bool                    // rates are counts of a Poisson process

	steadyFrom  int     // the steady part begins here
	steadyBy    int     // nine in ten loads are steady by then
	minFound    float64 // minimum share of loads that are steady within a minute
	maxTooEarly float64 // maximum share of loads that are steady too early: before a long enough steady part
}

// untilSteady checks a load each second for a minute. It returns the time at which it is steady, or 0 and the reason
// why not.
func (w warmupModel) untilSteady(random *rand.Rand) (found int, why string) {
	var seconds []Second
	for t := range 60 {
		at := float64(t) + 0.5
		noisy := func(v float64) float64 { return max(0, v*(1+w.noise*random.NormFloat64())) }
		rate := w.rate(at)
		sent, received := noisy(rate), noisy(rate)
		if w.count {
			sent = poissonCount(random, rate)
			received = sent
		}
		delay := 0.01
		if w.delay != nil {
			delay = w.delay(at)
		}
		seconds = append(seconds, Second{Sent: math.Round(sent), Received: math.Round(received), Latency: noisy(delay),
			Samples: math.Round(sent)})
		if why = NotSteady(seconds, true, true); why == "" {
			return t + 1, ""
		}
	}
	return 0, why
}

func poissonCount(random *rand.Rand, mean float64) (n float64) {
	for sum := random.ExpFloat64(); sum < mean; sum += random.ExpFloat64() {
		n++
	}
	return n
}

func constant(v float64) func(float64) float64 { return func(float64) float64 { return v } }

// approach changes from a to b with a time constant.
func approach(a, b, tau float64) func(float64) float64 {
	return func(t float64) float64 { return b + (a-b)*math.Exp(-t/tau) }
}

func linear(perSecond float64) func(float64) float64 {
	return func(t float64) float64 { return 10_000 * (1 + perSecond*t) }
}

func waves(part, period float64) func(float64) float64 {
	return func(t float64) float64 { return 10_000 * (1 + part*math.Sin(2*math.Pi*t/period)) }
}

func step(at, before, after float64) func(float64) float64 {
	return func(t float64) float64 {
		if t < at {
			return before
		}
		return after
	}
}

// Loads that become steady are detected soon afterwards. Of loads that never do, at most one in twenty is detected as
// steady.
func TestNotSteady(t *testing.T) {
	const loads = 300
	for _, w := range []warmupModel{
		{name: "steady", rate: constant(10_000), steadyBy: 6, minFound: 1},
		{name: "steady, noise of 1 %", rate: constant(10_000), noise: 0.01, steadyBy: 12, minFound: 1},
		{name: "steady, noise of 10 %", rate: constant(10_000), noise: 0.1, steadyBy: 45, minFound: 0.9},
		{name: "approach within 3 s", rate: approach(2000, 10_000, 1), noise: 0.01, steadyFrom: 2, steadyBy: 16,
			minFound: 1, maxTooEarly: 0.05},
		{name: "approach within 12 s", rate: approach(2000, 10_000, 4), noise: 0.01, steadyFrom: 10, steadyBy: 30,
			minFound: 1, maxTooEarly: 0.05},
		{name: "latency falls", rate: constant(10_000), delay: approach(0.1, 0.01, 2), noise: 0.02, steadyFrom: 5,
			steadyBy: 24, minFound: 1, maxTooEarly: 0.05},
		{name: "step at once", rate: step(4, 3000, 10_000), noise: 0.005, steadyFrom: 4, steadyBy: 12, minFound: 1,
			maxTooEarly: 0.01},
		{name: "1 per second", rate: constant(1), steadyBy: 34, minFound: 1},
		{name: "1 per second, Poisson", rate: constant(1), count: true, steadyBy: 60, minFound: 0.8},
		{name: "1000 per second, Poisson", rate: constant(1000), count: true, noise: 0.02, steadyBy: 30,
			minFound: 0.95},
		{name: "rises by 1 % per second", rate: linear(0.01), noise: 0.01, steadyFrom: 60, maxTooEarly: 0.05},
		{name: "rises by 1 % per second, noise of 5 %", rate: linear(0.01), noise: 0.05, steadyFrom: 60,
			maxTooEarly: 0.05},
		{name: "rises by 2 % per second, noise of 10 %", rate: linear(0.02), noise: 0.1, steadyFrom: 60,
			maxTooEarly: 0.05},
		{name: "falls by 0.8 % per second, noise of 2 %", rate: linear(-0.008), noise: 0.02, steadyFrom: 60,
			maxTooEarly: 0.05},
		{name: "latency rises by 2 % per second", rate: constant(10_000),
			delay: func(t float64) float64 { return 0.01 * math.Exp(t/50) }, noise: 0.05, steadyFrom: 60,
			maxTooEarly: 0.05},
		{name: "waves of 50 %, 4 s", rate: waves(0.5, 4), noise: 0.01, steadyFrom: 60, maxTooEarly: 0.05},
		{name: "waves of 50 %, 11 s", rate: waves(0.5, 11), noise: 0.01, steadyFrom: 60, maxTooEarly: 0.05},
		{name: "small waves, 3 s", rate: waves(0.03, 3), steadyBy: 20, minFound: 1},
		{name: "nothing", rate: constant(0), steadyFrom: 60},
	} {
		t.Run(w.name, func(t *testing.T) {
			var some, early, slow float64
			for i := range uint64(loads) {
				found, why := w.untilSteady(rand.New(rand.NewPCG(i, 1)))
				if found == 0 {
					if why == "" {
						t.Fatal("NotSteady: got not steady without a reason")
					}
					continue
				}
				if found < w.steadyFrom+minSteady {
					early++
				}
				some++
				if found > w.steadyBy {
					slow++
				}
			}
			t.Logf("shares of loads: steady %.3f, too early %.3f, late %.3f", some/loads, early/loads, slow/loads)
			if some/loads < w.minFound {
				t.Errorf("share of steady loads: got %.3f, want at least %.2f", some/loads, w.minFound)
			}
			if early/loads > w.maxTooEarly {
				t.Errorf("share of loads that are steady too early: got %.3f, want at most %.2f", early/loads,
					w.maxTooEarly)
			}
			if slow/loads > 0.1 {
				t.Errorf("share of loads that are steady only after %d s: got %.3f, want at most 0.1", w.steadyBy,
					slow/loads)
			}
		})
	}
}

// If nothing is confirmed and consumers connect after warm-up, only the publish rate can be steady.
func TestSteadyWithoutDeliveries(t *testing.T) {
	var seconds []Second
	for range 10 {
		seconds = append(seconds, Second{Sent: 1000})
	}
	if why := NotSteady(seconds, false, true); why != "" {
		t.Errorf("only a publish rate: got not steady because of %q, want steady", why)
	}
	if NotSteady(seconds, true, true) == "" {
		t.Error("without confirms that are required: got steady, want not steady")
	}
	seconds[9].Received, seconds[9].Samples, seconds[9].Latency = 1000, 1000, 0.01
	if NotSteady(seconds, false, true) == "" {
		t.Error("with deliveries only in the last second: got steady, want not steady")
	}
}

// The reason why a load is not steady contains metrics that can be checked.
func TestReasonsOfAnUnsteadyLoad(t *testing.T) {
	for want, w := range map[string]warmupModel{
		// The last 5 s are around 57.5 s: of 0.015·5/(1+0.015·57.5), and 0.5/(1+5.75).
		"publish rate changed by +4 % ± 0 in the last 5 s of warm-up, and the limit is 5 % in 10 s": {rate: linear(0.015)},
		"median of publish latency changed by +7 % ± 0 in the last 5 s of warm-up, and the limit is 10 % in 10 s": {
			rate: constant(100), delay: func(t float64) float64 { return 0.01 * (1 + t/10) }},
		"publish rate changed by -13 % ± 58 in the last 60 s of warm-up, and the limit is 5 % in 10 s": {rate: waves(0.9, 4)},
		// Four seconds of a wave are at ± 0.35/√2.
		"publish rate varied by 25 % (coefficient of variation) in the last 60 s of warm-up": {rate: waves(0.35, 4)},
	} {
		if _, why := w.untilSteady(rand.New(rand.NewPCG(1, 1))); why != want {
			t.Errorf("got %q, want %q", why, want)
		}
	}
}

// A late start of an agent is in the warm-up, for any duration of it: nothing of the measurement is left out.
func TestLateStartInAutoWarmup(t *testing.T) {
	w := plan.Default()
	w.Warmup, w.Steady.Auto, w.Measure = 0, true, plan.Duration(2500*time.Millisecond)
	m := record.NewMerged()
	for i := range 8 {
		win := record.Window{Index: i, Start: int64(i) * int64(time.Second), Length: int64(time.Second),
			Measured: i >= 5}
		if i == 7 {
			win.Length /= 2
		}
		win.Counts[record.Sent] = 1000 * win.Length / int64(time.Second)
		m.Add(record.Snapshot{Agent: "a", Seq: uint64(i + 1), At: int64(i+1) * int64(time.Second),
			Begin: int64(5 * time.Second),
			Skew:  15 * time.Millisecond, Windows: []record.Window{win}, LastSend: int64(i+1)*int64(time.Second) - 1})
	}
	for range 2 { // judging again changes nothing
		o := Judge(plan.Task{Cell: plan.Cell{Workload: w}}, m, Facts{Agents: []plan.AgentPart{{Agent: "a"}}})
		if o.Cut.D() != 5*time.Second || o.Measured.D() != 2500*time.Millisecond ||
			o.Values["publish.rate"].Number != 1000 || o.Values["warmup.cut"].Number != 5 {
			t.Errorf("got cut %v (%+v), measured %v, publish.rate %+v, want 5 s, 2.5 s, 1000", o.Cut,
				o.Values["warmup.cut"], o.Measured, o.Values["publish.rate"])
		}
	}
}

// A rate that falls or a latency that rises during the whole measurement is flagged. A steady load and one that changes
// by configuration are not.
func TestDrift(t *testing.T) {
	for name, c := range map[string]struct {
		falls   float64 // decrease of the rate per second, as a fraction
		rises   float64 // increase of the latency per second, as a fraction
		seconds int
		edit    func(*plan.Workload)
		drifts  bool
	}{
		"steady":             {0, 0, 10, nil, false},
		"falls by 8 % per s": {0.08, 0, 10, nil, true},
		"falls, 5 s":         {0.08, 0, 5, nil, true},
		"falls, 4 s":         {0.08, 0, 4, nil, false},
		"falls by 3 %":       {0.003, 0, 10, nil, false},
		"20 % in 60 s":       {0.2 / 60, 0, 60, nil, true},
		"40 % in 120 s":      {0.4 / 120, 0, 120, nil, true},
		"75 % in 300 s":      {0.75 / 300, 0, 300, nil, true},
		"6 % in 60 s":        {0.06 / 60, 0, 60, nil, true},
		"4 % in 60 s":        {0.04 / 60, 0, 60, nil, false},
		"latency rises":      {0, 0.05, 10, nil, true},
		"20 % in 120 s":      {0, 0.2 / 120, 120, nil, true},
		"8 % in 120 s":       {0, 0.08 / 120, 120, nil, false},
		"with a profile":     {0.08, 0, 10, func(w *plan.Workload) { w.Publishers.Profile = []plan.Stage{{}} }, false},
		"with a fault":       {0.08, 0, 10, func(w *plan.Workload) { w.Faults = []plan.Fault{{}} }, false},
		"by count":           {0.08, 0, 10, func(w *plan.Workload) { w.Publishers.Count = 1 }, true},
	} {
		x := newTaskBuilder(func(w *plan.Workload) {
			w.Measure = plan.Duration(time.Duration(c.seconds) * time.Second)
			if c.edit != nil {
				c.edit(w)
			}
		})
		for second := -2; second < c.seconds; second++ {
			n := int64(2000 * (1 - c.falls*float64(max(0, second))))
			x.addSecond(second, []int64{n}, []int64{n})
			latency := 10e6 * (1 + c.rises*float64(max(0, second)))
			x.rec.Window(int64(second)*int64(time.Second), second >= 0).RecordN(record.Publish, int64(latency),
				uint64(n))
		}
		o := x.judge()
		checkFlag(t, o, plan.Drifting, c.drifts, "publish.rate", "consume.rate", "publish.p99")
		checkWarnings(t, o, c.drifts, "drifting: ")
		if t.Failed() {
			t.Fatalf("case %q failed; warnings %q", name, o.Warnings)
		}
	}
}

// Duplicates are not in the consume rate that is tested for a trend.
func TestLoadSamplesCountDistinctMessages(t *testing.T) {
	w := record.Window{Index: 0, Length: int64(time.Second), Measured: true}
	w.Counts[record.Received], w.Counts[record.Unique] = 150, 100
	m := record.NewMerged()
	m.Add(record.Snapshot{Agent: "a", Seq: 1, Windows: []record.Window{w}})
	if got := LoadSamples(m, true, time.Second)[0].Received; got != 100 {
		t.Errorf("got %v received messages, want 100", got)
	}
}
