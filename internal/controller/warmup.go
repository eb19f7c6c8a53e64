package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lockstep/internal/clock"
	"lockstep/internal/judge"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

const (
	lookEvery = time.Second
	// mostLag is the most that is waited for seconds of publishers that send rarely: they hand a second over with a message of a later one.
	mostLag = 5 * time.Second
)

// warmUp waits until the load is steady on all agents together, or for the most that may take, and has the measurement begin then: at one
// second of the load, named while it still lies ahead, that every agent confirms.
func (c *conduct) warmUp(ctx context.Context) error {
	least, most := c.work.Steady.Least.D(), c.work.Steady.Most.D()
	for next := least; ; next += lookEvery {
		until := c.zero + min(next, most).Nanoseconds()
		err := c.wait(ctx, func() (time.Duration, error) { return time.Duration(until - clock.Now()), c.trouble() })
		if err != nil {
			return err
		}
		if why := c.notSteady(); why == "" || next >= most {
			c.facts.NotSteady = why
			return c.beginMeasurement(ctx)
		}
	}
}

// notSteady is why the load is not steady, from the seconds of it that every agent has reported all of; empty if it is.
func (c *conduct) notSteady() string {
	heard := c.merge.ReportedUntil()
	known, publishers := time.Duration(1<<62), 0
	for _, p := range c.parts {
		known = min(known, time.Duration(heard[p.Agent]))
	}
	confirmed := false
	for _, t := range c.groups {
		w := t.Cell.Workload
		publishers += w.Publishers.Nodes * w.Publishers.Threads
		confirmed = confirmed || judge.Confirmed(w.Publishers.Mode)
	}
	seconds := judge.LoadSamples(c.merge, confirmed, known)
	sent := 0.0
	for _, s := range seconds[len(seconds)/2:] {
		sent += s.Sent
	}
	if rate := sent / float64(max(1, len(seconds)-len(seconds)/2)); rate > 0 {
		gap := time.Duration(float64(publishers) / rate * 1e9)
		known -= min(3*gap, mostLag)
	}
	return judge.NotSteady(seconds[:max(0, min(len(seconds), int(known/time.Second)))], confirmed, c.consumes())
}

// beginMeasurement names the second at which the measurement begins. An agent that hears of it too late fails the task: its messages
// would be missing in silence.
func (c *conduct) beginMeasurement(ctx context.Context) error {
	at := time.Duration(clock.Now()-c.zero) + plan.MeasureAhead
	at = (at + time.Second - 1).Truncate(time.Second)
	if err := c.step(ctx, wire.Release{Step: wire.StepMeasure, Begin: at.Nanoseconds()}, stepMargin); err != nil {
		return err
	}
	if i := slices.IndexFunc(c.parts, func(p *part) bool { return !p.dropped && p.begin != at.Nanoseconds() }); i >= 0 {
		return &failure{plan.FailedRun, fmt.Sprintf("agent %s set the beginning of the measurement to %v of the load, not to %v", c.parts[i].Agent, time.Duration(c.parts[i].begin), at)}
	}
	c.origin = c.zero + at.Nanoseconds()
	c.measuring = true
	return nil
}
