package matrix

import (
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
	return d, append(d.Unsupported(b.Driver, use), d.Rejections...)
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
