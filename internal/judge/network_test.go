package judge

import (
	"math"
	"slices"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// The achieved latency is the configured one plus twice the one-way delay. It is flagged if its median differs by more
// than 5 % and 100 µs.
func TestAchievedLatency(t *testing.T) {
	for _, x := range []struct {
		configured, delay time.Duration // one way
		off               bool
	}{
		{time.Millisecond, 40 * time.Microsecond, false},
		{time.Millisecond, 60 * time.Microsecond, true},
		{5 * time.Millisecond, 110 * time.Microsecond, false},
		{5 * time.Millisecond, 140 * time.Microsecond, true},
		{0, 60 * time.Microsecond, true},
		{0, 0, false},
	} {
		w := newTaskBuilder(func(w *plan.Workload) { w.Network.Latency = plan.Duration(x.configured) })
		w.receive(w.send(0), 0, 0)
		w.sample(record.Publish, time.Millisecond)
		for range 99 {
			w.sample(record.NetworkDelay, x.delay)
		}
		w.sample(record.NetworkDelay, 10*time.Millisecond)
		o := w.judge()
		p50, want := o.Values["network.latency.p50"], (x.configured + 2*x.delay).Seconds()
		if p50.NA != "" || math.Abs(p50.Number-want) > 0.001*want {
			t.Errorf("latency %v, delay %v: network.latency.p50: got %+v, want %v", x.configured, x.delay, p50, want)
		}
		if off := slices.Contains(o.Values["publish.p50"].Flags, plan.LatencyOff); off != x.off {
			t.Errorf("latency %v, delay %v: flag %s: got %v, want %v", x.configured, x.delay, plan.LatencyOff, off,
				x.off)
		}
	}
	w := newTaskBuilder(nil)
	w.receive(w.send(0), 0, 0)
	if v := w.judge().Values["network.latency.p50"]; v.NA != NANoNetwork {
		t.Errorf("without a network: got %+v, want %q", v, NANoNetwork)
	}
}
