package judge

import (
	"math"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// A simulated latency is as asked for if the median deviates by no more than one of these.
const (
	latencyPart = 0.05 // of the latency asked for
	latencyOff  = 100 * time.Microsecond
)

// NANoNetwork is why a cell has no achieved latency.
const NANoNetwork = "no network is simulated, or nothing passed it"

// network sets the added latency of a round trip that the simulated network achieved: the one asked for, and twice the delay of a piece one way.
func (j *judge) network() {
	delays, asked := j.m.Hist(record.NetworkDelay), j.w.Network.Latency.D()
	achieved := func(q float64) time.Duration { return asked + 2*time.Duration(delays.Quantile(q)) }
	for _, q := range []plan.Quantile{{Name: "p50", Q: 0.5}, {Name: "p99", Q: 0.99}} {
		if name := "network.latency." + q.Name; delays.Count() > 0 {
			j.number(name, achieved(q.Q).Seconds())
		} else {
			j.na(name, NANoNetwork)
		}
	}
	if off := achieved(0.5) - asked; off > latencyOff && float64(off) > math.Round(latencyPart*float64(asked)) {
		j.flag(plan.LatencyOff, performance()...)
		j.warn("latency-off: the simulated network added %v to a round trip (median), %v was asked for: the agents' hosts are too busy, or too slow, for it",
			achieved(0.5).Round(time.Microsecond), asked)
	}
}
