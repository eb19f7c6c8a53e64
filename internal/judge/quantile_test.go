package judge

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// A quantile is a number with at least 10/(1-q) samples, otherwise a lower bound. The maximum is always the measured
// one.
func TestQuantilesOfFewSamples(t *testing.T) {
	for _, c := range []struct {
		n    int // samples of 1 ms, 2 ms, … n ms
		name string
		ms   float64 // 0: unknown
		over bool
	}{
		{4, "p50", 0, false}, {8, "p50", 2, true}, {19, "p50", 6, true}, {20, "p50", 10, false},
		{23, "p90", 18, true}, {100, "p90", 90, false}, {23, "p99", 22, true}, {23, "p99.9", 23, true},
		{999, "p99", 984, true},
		{1000, "p99", 990, false}, {9999, "p99.9", 9984, true}, {10_000, "p99.9", 9990, false}, {23, "max", 23, false},
		{1, "max", 1, false},
	} {
		h := record.NewHist()
		for i := range c.n {
			h.Record(int64(i+1) * int64(time.Millisecond))
		}
		for _, q := range plan.Quantiles() {
			if q.Name != c.name {
				continue
			}
			v := distribution{h, h}.quantile(q.Q)
			if (v.NA == NAFewSamples) != (c.ms == 0) || v.Over > 0 != c.over ||
				math.Abs(v.Number*1000-c.ms) > 0.001*c.ms {
				t.Errorf("%s of %d samples: got %+v, want %g ms, a bound %v", q.Name, c.n, v, c.ms, c.over)
			}
			if sample := time.Duration(h.Quantile(q.Q)).Seconds(); c.over && v.Sample != sample {
				t.Errorf("%s of %d samples: quantile of the samples: got %g s, want %g s", q.Name, c.n, v.Sample,
					sample)
			}
		}
	}
}

// The same holds for the latency of the simulated network and for the delays that Go's runtime measures.
func TestOtherQuantilesOfFewSamples(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		n    int // samples of each series
		over bool
	}{{1, true}, {500, true}, {1000, false}} {
		x := newTaskBuilder(func(w *plan.Workload) { w.Network.Latency = plan.Duration(5 * ms) })
		x.receive(x.send(0), 0, 0)
		for i := range c.n {
			for _, s := range []record.Series{record.NetworkDelay, record.GCPause, record.Scheduling} {
				x.sample(s, ms+time.Duration(i)*ms/1000)
			}
		}
		o := x.judge()
		for _, name := range []string{"network.latency.p99", "agent.gc.p99", "agent.sched.p99"} {
			if v := o.Values[name]; v.NA != "" || v.Over > 0 != c.over || v.Over > 0 != (v.Sample >= v.Number) {
				t.Errorf("%s of %d samples is %+v, want a bound: %v", name, c.n, v, c.over)
			}
		}
		largest := (ms + time.Duration(c.n-1)*ms/1000).Seconds()
		for name, want := range map[string]float64{"agent.gc.max": largest, "agent.sched.max": largest} {
			if v := o.Values[name]; v.NA != "" || v.Over > 0 || math.Abs(v.Number-want) > 0.001*want {
				t.Errorf("%s of %d samples is %+v, want %g s", name, c.n, v, want)
			}
		}
		first := (ms + time.Duration(float64(c.n-1)*0.98)*ms/1000).Seconds()
		if v := o.Values["network.latency.p99"]; v.Number < 5e-3+2*first || v.Number > 5e-3+2*largest*1.001 {
			t.Errorf("network.latency.p99 of %d samples is %+v", c.n, v)
		}
	}
	x := newTaskBuilder(nil)
	x.receive(x.send(0), 0, 0)
	x.sample(record.Scheduling, ms)
	o := x.judge()
	if p99, most := o.Values["agent.gc.p99"], o.Values["agent.gc.max"]; p99.NA != NAFewSamples || most.NA != "" ||
		most.Number != 0 {
		t.Errorf("without pauses: p99 %+v, max %+v", p99, most)
	}
}

// The bound is below the quantile of the sampled distribution in at least 95 % of cells, for any number of samples.
func TestBoundsOfQuantilesCover(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 16))
	const cells = 2000
	for _, n := range []int{8, 23, 99, 400, 999} {
		for _, q := range []plan.Quantile{{Name: "p50", Q: 0.5}, {Name: "p90", Q: 0.9}, {Name: "p99", Q: 0.99},
			{Name: "p99.9", Q: 0.999}} {
			truth, below, bounds := -10*math.Log(1-q.Q), 0, 0
			for range cells {
				h := record.NewHist()
				for range n {
					h.Record(int64(10e6 * r.ExpFloat64()))
				}
				v := distribution{h, h}.quantile(q.Q)
				if v.Over > 0 {
					bounds++
				}
				if v.Number*1000 <= truth*1.001 {
					below++
				}
			}
			if enough := float64(n)*(1-q.Q) > 9.999; bounds != cells && !enough || bounds > 0 && enough {
				t.Errorf("%d samples: got a bound of %s in %d of %d cells, want in all or none", n, q.Name, bounds,
					cells)
			}
			// 93.2 % is 3.7 standard deviations below 95 %.
			if bounds > 0 && below < cells*932/1000 {
				t.Errorf("%d samples: bound of %s below the ground truth: got %.1f %% of cells, want at least 93.2 %%",
					n, q.Name, 100*float64(below)/cells)
			}
		}
	}
}
