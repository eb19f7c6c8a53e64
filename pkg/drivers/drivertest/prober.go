package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// probeLimit is the timeout of a probe.
const probeLimit = time.Minute

// prober returns the session of a rig as a Prober. The check does not apply if it is none.
func (r *rig) prober() drivers.Prober {
	p, can := drivers.As[drivers.Prober](r.session)
	if !can {
		r.c.notApplicable("the session is no Prober")
	}
	return p
}

// probe calls Probe and checks that the metrics are valid.
func (c *check) probe(p drivers.Prober) []drivers.Metric {
	ctx, cancel := context.WithTimeout(c.ctx, probeLimit)
	defer cancel()
	metrics, err := p.Probe(ctx)
	if errors.Is(err, drivers.ErrUnsupported) {
		c.notApplicable("%v", err)
	}
	c.must(err, "Probe")
	seen := map[string]map[string]bool{}
	for _, f := range metrics {
		if !declaresMetric(c, f.Name) {
			c.errorf("metric %q is not declared in Info.Metrics", f.Name)
		}
		if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) || f.Value < 0 {
			c.errorf("%s of %q is %v: unknown values must be left out", f.Name, f.Node, f.Value)
		}
		if seen[f.Name] == nil {
			seen[f.Name] = map[string]bool{}
		}
		if seen[f.Name][f.Node] {
			c.errorf("%s of %q comes twice in one answer", f.Name, f.Node)
		}
		seen[f.Name][f.Node] = true
	}
	for name, nodes := range seen {
		if nodes[""] && len(nodes) > 1 {
			c.errorf("%s is of the whole broker and of nodes: it would be counted twice", name)
		}
	}
	return metrics
}

// total returns the sum of a metric over all nodes.
func total(metrics []drivers.Metric, name string) (sum float64, reported bool) {
	for _, f := range metrics {
		if f.Name == name {
			sum, reported = sum+f.Value, true
		}
	}
	return sum, reported
}

// checkProbe probes the broker while it has load, and compares queue_depth with the number of messages in the queues.
func checkProbe(c *check) {
	r := c.rig(c.use(c.anyMode()))
	p := r.prober()
	if first := c.probe(p); len(first) == 0 {
		c.errorf("Probe returned neither metrics nor an error")
	}
	s := r.sender(1)
	const n = 20
	s.send(n)
	second := c.probe(p)
	c.logf("%v", second)
	for _, f := range []string{drivers.MetricMemory, drivers.MetricQueues} {
		if sum, reported := total(second, f); reported && sum <= 0 {
			c.errorf("%s is %v of a broker at work", f, sum)
		}
	}
	if !r.keeps() || !reportsDepth(c, p) {
		return
	}
	becomes(c, p, []expected{{drivers.MetricQueueDepth, n, n, true}})
	in := r.inbox(nil)
	in.arrive(s.kept())
	if r.declared.Capabilities.Redelivery { // without it, queues keep consumed messages
		becomes(c, p, []expected{{drivers.MetricQueueDepth, 0, 0, true}})
	}
}

// declaresMetric reports whether the driver declares a metric.
func declaresMetric(c *check, name string) bool {
	return slices.ContainsFunc(c.h.Driver.Info().Metrics, func(m drivers.MetricInfo) bool { return m.Name == name })
}

// checkProbeRate publishes until publish_rate is that of the check itself, within a factor. Brokers may report rates
// with a delay, and as averages over some seconds.
func checkProbeRate(c *check) {
	const factor, pause = 4, 50 * time.Millisecond
	if !declaresMetric(c, drivers.MetricPublishRate) {
		c.notApplicable("publish_rate is not declared")
	}
	r := c.rig(c.use(c.anyMode()))
	p := r.prober()
	s := r.sender(1)
	sent, probes, began, probed := 0, 0, time.Now(), time.Time{}
	for {
		const n = 10
		s.send(n)
		sent += n
		time.Sleep(pause)
		if time.Since(probed) < time.Second {
			continue
		}
		probed = time.Now()
		rate, reported := total(c.probe(p), drivers.MetricPublishRate)
		published := float64(sent) / time.Since(began).Seconds()
		probes++
		switch {
		case c.h.NoPublishRate && reported:
			c.errorf("publish_rate is reported although Harness.NoPublishRate is set")
			return
		case c.h.NoPublishRate && probes > 1: // the first probe has no rates
			c.notApplicable("the broker does not report publish_rate")
		case reported && rate > published/factor && rate < published*factor:
			c.logf("publish_rate is %.1f, published were %.1f per second", rate, published)
			return
		case time.Since(began) > 2*c.wait:
			c.errorf("publish_rate is %v (reported: %v; set Harness.NoPublishRate if the broker never reports it) after %d messages, of which %.1f per second were published", rate,
				reported, sent, published)
			return
		}
	}
}

// reportsDepth waits until the broker reports the depth of the topology's queues, which some brokers do only after some
// time. It returns false if Harness.NoQueueDepth is set or the wait fails.
func reportsDepth(c *check, p drivers.Prober) bool {
	for began := time.Now(); ; time.Sleep(c.quiet()) {
		_, reported := total(c.probe(p), drivers.MetricQueueDepth)
		if reported && c.h.NoQueueDepth {
			c.errorf("queue_depth is reported although Harness.NoQueueDepth is set")
		}
		if reported || c.h.NoQueueDepth {
			return reported
		}
		if time.Since(began) > 2*c.wait {
			c.errorf("queue_depth is not reported: set Harness.NoQueueDepth if the broker never reports it")
			return false
		}
	}
}

// expected is the range in which a metric must be, if the broker reports it or is required to.
type expected struct {
	name     string
	min, max float64
	required bool
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
	becomes(c, p, []expected{{drivers.MetricUnacked, n, n, false}, {drivers.MetricLag, n, n, false},
		{drivers.MetricConsumers, 1, math.Inf(1), false}, {drivers.MetricConnections, 1, math.Inf(1), false}})
	c.within(c.wait, "Ack", func() {
		in.turn <- struct{}{}
		defer func() { <-in.turn }()
		in.consumer.Ack(n)
	})
	becomes(c, p, []expected{{drivers.MetricUnacked, 0, 0, false}, {drivers.MetricLag, 0, 0, false}})
	metrics := c.probe(p)
	whole, is := total(metrics, drivers.MetricMemory)
	if part, too := total(metrics, drivers.MetricMemoryQueues); is && too && part > whole {
		c.errorf("memory.queues is %v, more than memory with %v", part, whole)
	}
}

// becomes waits until the metrics are in their ranges. Brokers may report them with a delay.
func becomes(c *check, p drivers.Prober, all []expected) {
	wrong, seen := "", ""
	c.eventually(func() bool {
		wrong, seen = "", ""
		metrics := c.probe(p)
		for _, m := range all {
			value, is := total(metrics, m.name)
			if !is && m.required {
				wrong = m.name + " is not reported"
			}
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

// checkProbeEnds proves that a probe ends with its context, and does not break other links.
func checkProbeEnds(c *check) {
	r := c.rig(c.use(c.anyMode()))
	p := r.prober()
	c.probe(p)
	in := r.inbox(nil)
	s := r.sender(1)
	if !c.h.NoNetwork {
		c.dial.stall(true)
		ctx, cancel := context.WithTimeout(c.ctx, c.quiet())
		defer cancel()
		c.within(c.wait, "Probe of a broker that does not answer", func() {
			if metrics, _ := p.Probe(ctx); len(metrics) > 0 {
				c.errorf("Probe returned %v for a broker that does not answer; unknown metrics must be left out", metrics)
			}
		})
		c.dial.stall(false)
	}
	cancelled, cancel := context.WithCancel(c.ctx)
	cancel()
	c.within(c.wait, "Probe with a cancelled context", func() {
		if metrics, _ := p.Probe(cancelled); len(metrics) > 0 {
			c.errorf("Probe returned %v without a request to the broker; unknown metrics must be left out", metrics)
		}
	})
	s.send(5)
	if r.keeps() {
		in.exactly(s.kept())
	}
	c.eventually(func() bool {
		ctx, cancel := context.WithTimeout(c.ctx, probeLimit)
		defer cancel()
		_, err := p.Probe(ctx)
		return err == nil
	}, func() string { return "a probe does not work again after one was given up" })
	if err := failure(s.pub, s.conn, in.consumer, in.conn); err != nil {
		c.errorf("a probe that was given up broke the link of another: %v", err)
	}
}
