package matrix

import (
	"fmt"
	"path/filepath"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// validateShape returns the errors of sizes, payloads, keys, processing, refusals and lifetimes, of a cell without
// groups or of one group.
func validateShape(w plan.Workload) []problem {
	var out problems
	p, c := w.Publishers, w.Consumers
	validateSteady(&out, w)
	validateMessage(&out, w.Message)
	if c.Nodes > 0 {
		validateConsumers(&out, c, w.Drain.Idle)
		validateLifetime(&out, "consumers", c.Lifetime, w.Measure, p.Count)
	}
	validateLifetime(&out, "publishers", p.Lifetime, w.Measure, p.Count)
	return out
}

func validateMessage(out *problems, m plan.Message) {
	out.report(m.Size == 0, "message.size", "the list is empty; give at least one {size} or {min, max}")
	for i, s := range m.Sizes {
		out.report(s.Min == 0 || s.Max == 0, "message.size", "size %d of the list is incomplete; give size, or min and max",
			i+1)
		out.report(s.Min > s.Max && s.Max > 0, "message.size", "min %d is above max %d; swap them", s.Min, s.Max)
	}
	pay, isDefault := m.Payload, plan.Default().Message.Payload.Repeat
	out.report(pay.Repeat != isDefault && pay.Kind != plan.PayloadCompressible, "message.payload.repeat",
		"%v has no effect with kind %q; set kind: \"compressible\"", pay.Repeat, pay.Kind)
	out.report(pay.Kind == plan.PayloadFile && !filepath.IsAbs(pay.File), "message.payload.file",
		"%q is no absolute path; give one on the hosts of the agents that publish", pay.File)
	out.report(pay.Kind != plan.PayloadFile && pay.File != "", "message.payload.file",
		"%q has no effect with kind %q; set kind: \"file\"", pay.File, pay.Kind)
	out.report(m.Keys.Skew > 0 && m.Keys.Count == 0, "message.keys.skew",
		"%v has no effect without message.keys.count; set it", m.Keys.Skew)
}

func validateConsumers(out *problems, c plan.Consumers, silence plan.Duration) {
	s := c.Process
	out.report(s.Min > s.Max && s.Mean == 0, "consumers.process", "min %s is above max %s; swap them", s.Min, s.Max)
	out.report(s.Mean > 0 && (s.Min > 0 || s.Max > 0), "consumers.process",
		"it has a mean, %s, and also bounds; give {mean}, or {min, max}", s.Mean)
	batch := c.Batch
	if c.Prefetch > 0 {
		batch = min(batch, c.Prefetch)
	}
	if takes := longest(s, batch); s.Min <= s.Max {
		out.report(takes >= silence, "consumers.process",
			"a consumer may process %s for up to %s without receiving, and drain.idle is %s: waiting messages would count as lost; lower consumers.batch or raise drain.idle",
			display.Count(batch, "message"), takes, silence)
	}
	out.report(c.Nack > 0 && c.Ack == "automatic", "consumers.nack",
		"%v needs acknowledgements, and consumers.ack is \"automatic\"; set consumers.ack: \"each\"", c.Nack)
}

// longest returns the practical maximum of the processing time of a batch. For exponential times it is one maximum of
// ten means, plus the mean of each other message.
func longest(s plan.DurationDist, batch int) plan.Duration {
	if s.Mean > 0 {
		return s.Mean * plan.Duration(batch-1+10)
	}
	return s.Max * plan.Duration(batch)
}

func validateLifetime(out *problems, role string, p plan.Lifetime, measure plan.Duration, byCount uint64) {
	if p == (plan.Lifetime{}) {
		return
	}
	at := role + ".lifetime"
	out.report(byCount > 0, at,
		"%s have lifetimes, and publishers.count ends the measurement; use measure instead", role)
	out.report(p.ConnectAt >= measure && p.ConnectAt > 0, at+".connectAt", "%s is not before the measurement ends, at %s; lower it",
		p.ConnectAt, measure)
	out.report(p.DisconnectAt >= measure && p.DisconnectAt > 0, at+".disconnectAt",
		"%s is not before the measurement ends, at %s; remove it to stay connected until the end", p.DisconnectAt, measure)
	out.report(p.DisconnectAt > 0 && p.DisconnectAt <= p.ConnectAt, at+".disconnectAt", "%s is not after connectAt, %s; raise it", p.DisconnectAt,
		p.ConnectAt)
	out.report((p.Stay > 0) != (p.Away > 0), at, "stay is %s and away is %s; give both or neither", p.Stay, p.Away)
	out.report(p.Stay > 0 && p.ConnectAt+p.Stay >= measure, at+".stay",
		"%s after connectAt, %s, is not before the measurement ends, at %s: no client would disconnect; lower it", p.Stay, p.ConnectAt, measure)
}

// tooLarge reports cells whose bodies in flight exceed plan.MaxInFlightBytes on an agent.
func tooLarge(c *plan.Cell) []problem {
	if len(c.Workload.Groups) == 0 {
		return tooLargePart("", c.Workload.Publishers, c.Workload.Message, c.CopiesBody, c.Resilience)
	}
	var out []problem
	for _, g := range c.Workload.Groups {
		out = append(out, tooLargePart("groups."+g.Name+".", g.Publishers, g.Message, g.CopiesBody, g.Resilience)...)
	}
	return out
}

func tooLargePart(prefix string, p plan.Publishers, m plan.Message, copies bool, resilience string) []problem {
	slots := 1
	switch {
	case copies && !(resilience != "" && resilience != plan.NoResilience && m.Varies()):
	case p.Mode == "confirm-window":
		slots = p.MaxInFlight
	case p.Mode == "confirm-batch":
		slots = p.Batch.Max
	}
	total := float64(p.Threads) * float64(slots) * float64(m.Size)
	if total <= plan.MaxInFlightBytes {
		return nil
	}
	return []problem{{prefix + "message.size", fmt.Sprintf(
		"%d threads × %s in flight × %d bytes are %.1f GiB of bodies per agent, and the maximum is %d GiB; lower message.size, publishers.threads, publishers.maxInFlight or publishers.batch",
		p.Threads, display.Count(slots, "message"), m.Size, total/(1<<30), plan.MaxInFlightBytes>>30)}}
}
