package judge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// loadModel describes a cell with a constant load, except for these disturbances.
type loadModel struct {
	undelivered  float64 // share of the publish rate that one flow does not deliver
	rateDecrease float64 // decrease of the rate per second, as a fraction
	skew         time.Duration
	bound        time.Duration // of the clocks' difference
	oneClock     bool          // the agents have one clock
}

// outcome simulates a cell of random size. Arrivals are a Poisson process, uniform, or of noisy rate. Messages in
// flight vary as a Poisson process, as the queue of a broker with a utilisation of 80 %, or with batches of consumers.
// Latencies are lognormal, with variation between seconds. In half of the cells, variation between seconds is
// autocorrelated (AR(1), 0.5). The utilisation of hosts is 75 %, publishers work half of the time, and the simulated
// network is late by some microseconds.
func (c loadModel) outcome(r *rand.Rand) plan.Outcome {
	uniform := func(low, high float64) float64 { return math.Exp(math.Log(low) + r.Float64()*math.Log(high/low)) }
	poisson := func(mean float64) float64 {
		if mean > 1000 {
			return math.Round(mean + math.Sqrt(mean)*r.NormFloat64())
		}
		return poissonCount(r, mean)
	}
	rate, measure := uniform(50, 50_000), int(uniform(1, 120))
	if c != (loadModel{}) {
		measure = 10
	}
	subscriptions, queues := 1, 1
	switch r.IntN(4) {
	case 0:
		subscriptions = 2 + r.IntN(20)
	case 1:
		queues = 2 + r.IntN(20)
	}
	flows := subscriptions * queues
	each := rate / float64(queues)
	x := newTaskBuilder(func(w *plan.Workload) {
		w.Measure, w.Topology.Subscriptions, w.Topology.Queues = plan.Duration(time.Duration(measure)*time.Second),
			subscriptions, queues
		if w.Publishers.Rate = rate; r.IntN(3) == 0 {
			w.Publishers.Rate = 0
		}
		w.Network.Latency = plan.Duration(time.Duration(r.IntN(3)) * time.Millisecond)
	})
	if !c.oneClock {
		x.facts.Agents[1].Clock = "clock-2"
	}
	correlation := 0.5 * float64(r.IntN(2))
	// noisy is a standard normal series with autocorrelation.
	noisy := func() func() float64 {
		last := r.NormFloat64()
		return func() float64 {
			last = correlation*last + math.Sqrt(1-correlation*correlation)*r.NormFloat64()
			return last
		}
	}
	rateNoise, latencyNoise, levelNoise := noisy(), noisy(), noisy()
	arrivals, levels, noise := r.IntN(3), r.IntN(3), uniform(0.002, 0.1)
	delay, batch := uniform(0.0005, 0.2), uniform(1, max(2, each/5))
	level := make([]float64, flows)
	median, varies, shape := uniform(0.0002, 0.2), uniform(0.005, 0.1), uniform(0.1, 1)
	for second := -2; second < measure; second++ {
		published := make([]int64, queues)
		factor, together, waiting := 1-c.rateDecrease*float64(max(0, second)), 1+noise*rateNoise(),
			max(0.1, 1+0.3*levelNoise())
		for q := range published {
			switch arrivals {
			case 0:
				published[q] = int64(poisson(each * factor))
			case 1:
				published[q] = int64(each * factor)
			default:
				published[q] = int64(max(0, each*factor*together))
			}
		}
		delivered := make([]int64, flows)
		for f := range delivered {
			left := poisson(each * delay * waiting)
			switch levels {
			case 1: // geometric with mean 4
				left += math.Floor(math.Log(r.Float64()) / math.Log(0.8))
			case 2:
				left += math.Floor(batch * r.Float64())
			}
			if f == flows-1 {
				left += c.undelivered * each * float64(second+3)
			}
			delivered[f] = max(0, int64(level[f]+float64(published[f%queues])-left))
			level[f] += float64(published[f%queues] - delivered[f])
		}
		x.addSecond(second, published, delivered)
		w := x.rec.Window(int64(second)*int64(time.Second), second >= 0)
		middle := median * (1 + varies*latencyNoise())
		for i := range 20 {
			latency := int64(1e9 * middle * math.Exp(shape*math.Sqrt2*math.Erfinv(2*(float64(i)+0.5)/20-1)))
			n := uint64(math.Ceil(rate / 20))
			w.RecordN(record.Publish, latency, n)
			w.RecordN(record.PublishIntended, latency+50_000, n)
			w.RecordN(record.EndToEnd, 2*latency, n)
			w.RecordN(record.SendDelay, int64(20_000*r.Float64()), n)
			w.RecordN(record.Scheduling, int64(20_000*r.Float64()), 10)
			if x.task.Cell.Workload.Network.Latency > 0 {
				w.RecordN(record.NetworkDelay, int64(40_000*r.Float64()), n)
			}
		}
	}
	x.last.Skew = c.skew + time.Duration(float64(200*time.Microsecond)*r.NormFloat64())
	s := x.snapshot()
	x.facts.Cores = map[string]int{"a": 4, "b": 4}
	at := int64(time.Duration(measure) * time.Second)
	for i, agent := range []string{"a", "b"} {
		part := record.Snapshot{Agent: agent, Seq: 1000, At: at,
			Host: record.HostSample{At: at, AgentCPU: 2 * r.Float64(), AgentWaited: 0.2 * r.Float64(),
				HostCPU: 2 + r.Float64(), HostCores: 4, LocalBroker: r.IntN(2) == 0}}
		part.Busiest = record.PublisherTimes{Active: at, Waited: int64(float64(at) * (0.5 + 0.5*r.Float64()))}
		if !c.oneClock && i == 1 {
			part.Clock = "clock-2"
			for second := range measure + 1 {
				part.Clocks = append(part.Clocks, record.ClockSample{At: int64(second) * 1e9, Reference: "clock-1",
					Offset: int64(20_000 * r.NormFloat64()), Bound: int64(c.bound) + int64(uniform(20_000, 80_000))})
			}
		}
		x.merge.Add(part)
	}
	x.merge.Add(s)
	return Judge(x.task, x.merge, x.facts)
}

// flagCounts returns the number of cells per flag in which any value has the flag.
func (c loadModel) flagCounts(cells int, seed uint64) map[plan.Flag]int {
	r, counts := rand.New(rand.NewPCG(seed, 16)), map[plan.Flag]int{}
	for range cells {
		var flags []plan.Flag
		for _, v := range c.outcome(r).Values {
			flags = append(flags, v.Flags...)
		}
		slices.Sort(flags)
		for _, f := range slices.Compact(flags) {
			counts[f]++
		}
	}
	return counts
}

// With 1,000 stationary cells, each flag is set in at most 1 %. Three flags cannot occur here. degraded states that an
// agent was lost, and clipped that a sample exceeded an hour. not-steady states that an automatic warm-up reached its
// maximum before the load was proven to be steady: TestNotSteady has the power of this proof.
func TestFlagsHaveAnErrorBudget(t *testing.T) {
	const cells = 1000
	counts := loadModel{oneClock: true}.flagCounts(cells/2, 1)
	for f, n := range (loadModel{}).flagCounts(cells/2, 2) {
		counts[f] += n
	}
	t.Logf("flags in %d stationary cells: %v", cells, counts)
	for _, f := range plan.Flags() {
		if float64(counts[f]) > falseFlags*cells {
			t.Errorf("flag %s: got it in %d of %d stationary cells, want at most %v", f, counts[f], cells,
				falseFlags*cells)
		}
	}
}

// The same cells with such an effect set its flag, which proves that the error budget is not met by never setting a
// flag.
func TestFlagsAreRaised(t *testing.T) {
	const cells = 100
	for f, disturbance := range map[plan.Flag]loadModel{
		plan.Backlog:     {undelivered: 0.2, oneClock: true},
		plan.Drifting:    {rateDecrease: 0.05, oneClock: true},
		plan.Skewed:      {skew: 2500 * time.Millisecond, oneClock: true},
		plan.ClockUnsafe: {bound: time.Second},
	} {
		if n := disturbance.flagCounts(cells, 3)[f]; n < cells*9/10 {
			t.Errorf("flag %s: got it in %d of %d cells with %+v, want at least 90 %%", f, n, cells, disturbance)
		}
	}
}
