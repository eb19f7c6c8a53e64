package plan

import (
	"errors"
	"fmt"
	"time"
)

// mostTime bounds each duration of a workload: nobody waits longer.
const mostTime = Duration(366 * 24 * time.Hour)

// Bounded says what of a workload (without groups) is beyond what any matrix may ask for: such a workload is a mistake or hostile, and would take
// memory without limit. The bounds are those of the matrix schema.
func (w Workload) Bounded() error {
	p, c, t := w.Publishers, w.Consumers, w.Topology
	var faults []error
	for _, x := range []struct {
		name             string
		value, from, top int
	}{
		{"nodes of publishers", p.Nodes, 0, 10_000}, {"threads of publishers", p.Threads, 0, 100_000}, {"window", p.Window, 0, 100_000_000},
		{"least batch of publishers", p.Batch.Least, 0, 100_000_000}, {"most batch of publishers", p.Batch.Most, 0, 100_000_000},
		{"stages of the profile", len(p.Profile), 0, 100_000},
		{"nodes of consumers", c.Nodes, 0, 10_000}, {"threads of consumers", c.Threads, 0, 100_000}, {"prefetch", c.Prefetch, 0, 1_000_000},
		{"batch of consumers", c.Batch, 0, 1_000_000}, {"ackEvery", c.AckEvery, 0, 1_000_000},
		{"queues", t.Queues, 0, 100_000}, {"subscriptions", t.Subscriptions, 0, 10_000}, {"bindings", t.Bindings, 0, 1_000_000},
		{"channels", t.Channels, 0, 65_535}, {"message size", w.Message.Size, 0, 104_857_600}, {"message sizes", len(w.Message.Sizes), 0, 10_000},
		{"faults", len(w.Faults), 0, 10_000},
	} {
		if x.value < x.from || x.value > x.top {
			faults = append(faults, fmt.Errorf("%d %s: want %d to %d", x.value, x.name, x.from, x.top))
		}
	}
	for _, s := range w.Message.Sizes {
		if s.Least < 0 || s.Most < s.Least || s.Most > 104_857_600 {
			faults = append(faults, fmt.Errorf("%d to %d bytes of a message: want at most 104857600", s.Least, s.Most))
			break
		}
	}
	for _, x := range []struct {
		name  string
		value Duration
	}{
		{"warmup", w.Warmup}, {"measure", w.Measure}, {"interval", w.Interval}, {"connect", w.Connect}, {"silence of the drain", w.Drain.Silence},
		{"most of the drain", w.Drain.Most}, {"latency", w.Network.Latency}, {"jitter", w.Network.Jitter}, {"pause", p.Pause}, {"ackInterval", c.AckInterval},
	} {
		if x.value < 0 || x.value > mostTime {
			faults = append(faults, fmt.Errorf("%v of %s: want 0 to %v", x.value, x.name, mostTime))
		}
	}
	return errors.Join(faults...)
}
