package matrix

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// declare gets the driver's declaration for a cell. It returns the cell, or the reason why it is excluded.
func (w *worker) declare(combo []int, b *plan.Broker, work plan.Workload) Combination {
	coordinates, id := w.m.space.coordinates(combo), plan.CellID(b.Name, work)
	var d drivers.Declaration
	var reasons []string
	if len(work.Groups) > 0 {
		d, reasons = w.declareGroups(b, &work)
	} else {
		d, reasons = w.declarePart(b, work)
	}
	if len(reasons) > 0 {
		return Combination{Excluded: &plan.Excluded{Coordinates: coordinates, Kind: "n/a",
			Reason: strings.Join(reasons, "; ")}}
	}
	return Combination{Cell: &plan.Cell{
		ID: id, Coordinates: coordinates, Broker: *b, Workload: work,
		Label: d.Label, Guarantees: plan.Guarantees(d.Guarantees), CopiesBody: d.Capabilities.CopiesBody,
		InProcess: d.Capabilities.InProcess, Resilience: string(d.Resilience), Notes: d.Notes,
		RedeliverAfter: plan.Duration(d.RedeliverAfter),
	}}
}

// declarePart gets the declaration for a workload without groups. rejections lists the reasons why it is not supported.
func (w *worker) declarePart(b *plan.Broker, work plan.Workload) (d drivers.Declaration, rejections []string) {
	use := useOf(work)
	d, known := w.declared[question{b.Name, use}]
	if !known {
		d = w.m.drivers[b.Driver](plan.Unfilled(b.Options), use)
		w.declared[question{b.Name, use}] = d
	}
	return d, append(beyond(b.Driver, d.Capabilities, use), d.Rejections...)
}

func useOf(w plan.Workload) drivers.Use {
	p, c, t := w.Publishers, w.Consumers, w.Topology
	return drivers.Use{
		Mode: drivers.Mode(p.Mode), Persistent: p.Persistent, Mandatory: p.Mandatory, Ack: drivers.Ack(c.Ack),
		Prefetch: c.Prefetch,
		Queues:   t.Queues, Subscriptions: t.Subscriptions, Bindings: t.Bindings,
		Publishers: p.Nodes * p.Threads, Consumers: c.Nodes * c.Threads * t.Subscriptions,
		Churn:         t.Churn.Rate > 0,
		Keys:          w.Message.Keys.Count > 0,
		Nack:          c.Nodes > 0 && c.Nack > 0,
		Simulated:     w.Network != plan.Network{} || w.FaultsConnections(),
		PublisherNode: drivers.Node(p.Node), ConsumerNode: drivers.Node(c.Node), QueueNode: drivers.Node(t.QueueNode),
	}
}

// beyond returns the requirements of a use that the configuration does not support, in words.
func beyond(driver string, has drivers.Capabilities, use drivers.Use) []string {
	var out []string
	rejectIf := func(missing bool, format string, args ...any) {
		if missing {
			out = append(out, driver+" with these options "+fmt.Sprintf(format, args...))
		}
	}
	rejectIf(!slices.Contains(has.Modes, use.Mode), "cannot publish %s (it can: %s)", use.Mode, list(has.Modes))
	rejectIf(use.Mandatory && !has.Mandatory, "does not return unroutable messages (mandatory)")
	rejectIf(use.Persistent && !has.Persistent, "cannot store messages persistently (persistent: true)")
	rejectIf(!use.Persistent && !has.Transient, "always stores messages persistently (persistent: false)")
	rejectIf(use.Subscriptions > 1 && !has.Subscriptions, "does not support several subscriptions")
	rejectIf(use.Bindings > 1 && !has.Bindings, "does not support %d bindings per queue", use.Bindings)
	rejectIf(use.Churn && !has.Churn, "does not support churn of bindings (topology.churn)")
	rejectIf(use.Keys && !has.Keys, "does not use message keys (message.keys)")
	if use.Consumers > 0 {
		rejectIf(use.Nack && !has.Redelivery, "does not redeliver rejected messages (consumers.nack)")
		rejectIf(!slices.Contains(has.Acks, use.Ack), "cannot acknowledge %q (it can: %s)", use.Ack, list(has.Acks))
		rejectIf(use.Prefetch == 0 && !has.UnlimitedPrefetch, "has no unlimited prefetch (prefetch: 0)")
		rejectIf(use.ConsumerNode.Chosen() && !has.Nodes, "cannot place consumers on node %s", use.ConsumerNode)
	}
	rejectIf(use.PublisherNode.Chosen() && !has.Nodes, "cannot place publishers on node %s", use.PublisherNode)
	rejectIf(use.QueueNode.Chosen() && !has.Nodes, "cannot place queues on node %s", use.QueueNode)
	return out
}

func list[T ~string](all []T) string {
	out := make([]string, len(all))
	for i, x := range all {
		out[i] = string(x)
	}
	return strings.Join(out, ", ")
}
