package drivertest

import (
	"fmt"
	"math"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// reported is the range in which a metric must be, if the broker reports it.
type reported struct {
	name     string
	min, max float64
}

// checkProbeCounts compares the metrics that count messages and clients with those of the check. A consumer with
// unanswered deliveries is connected, and answers them.
func checkProbeCounts(c *check) {
	u := c.use(c.anyMode())
	d := c.need(u)
	if !keeps(u.Mode, d.Guarantees) || u.Ack == drivers.AckAutomatic {
		c.notApplicable("it is not guaranteed that messages arrive, or nothing is acknowledged")
	}
	r := c.rig(u)
	p := r.prober()
	c.probe(p)
	r.acking.never = true
	in := r.inbox(nil)
	s := r.sender(1)
	const n = 20
	s.send(n)
	if !in.arrive(s.kept()) {
		return
	}
	// Connections and consumers may include those of other users.
	becomes(c, p, []reported{{drivers.MetricUnacked, n, n}, {drivers.MetricLag, n, n},
		{drivers.MetricConsumers, 1, math.Inf(1)}, {drivers.MetricConnections, 1, math.Inf(1)}})
	c.within(c.wait, "Ack", func() {
		in.turn <- struct{}{}
		defer func() { <-in.turn }()
		in.consumer.Ack(n)
	})
	becomes(c, p, []reported{{drivers.MetricUnacked, 0, 0}, {drivers.MetricLag, 0, 0}})
	metrics := c.probe(p)
	whole, is := total(metrics, drivers.MetricMemory)
	if part, too := total(metrics, drivers.MetricMemoryQueues); is && too && part > whole {
		c.errorf("memory.queues is %v, more than memory with %v", part, whole)
	}
}

// becomes waits until the metrics that the broker reports are in their ranges. Brokers may report them with a delay.
func becomes(c *check, p drivers.Prober, all []reported) {
	wrong, seen := "", ""
	c.eventually(func() bool {
		wrong, seen = "", ""
		metrics := c.probe(p)
		for _, m := range all {
			value, is := total(metrics, m.name)
			if !is {
				continue
			}
			seen += fmt.Sprintf(" %s %v", m.name, value)
			if value < m.min || value > m.max {
				wrong = fmt.Sprintf("%s is %v, want %v to %v", m.name, value, m.min, m.max)
			}
		}
		return wrong == ""
	}, func() string { return wrong })
	c.logf("reported:%s", seen)
}
