package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"lockstep/pkg/drivers"
)

// nodeFigures is what the management API says of a node. A nil field is not said.
type nodeFigures struct {
	Name      string   `json:"name"`
	Running   bool     `json:"running"`
	PID       string   `json:"os_pid"`
	Uptime    int64    `json:"uptime"` // ms
	Processes *float64 `json:"proc_used"`
	RunQueue  *float64 `json:"run_queue"`
	Files     *float64 `json:"fd_used"`
	DiskFree  *float64 `json:"disk_free"`
}

func (n nodeFigures) each(add func(drivers.FigureName, float64)) {
	for name, value := range map[drivers.FigureName]*float64{
		drivers.FigureErlangProcesses: n.Processes, drivers.FigureRunQueue: n.RunQueue,
		drivers.FigureFileDescriptors: n.Files, drivers.FigureDiskFree: n.DiskFree,
	} {
		if value != nil {
			add(name, *value)
		}
	}
}

// columns asks for some fields only.
func columns(names string) url.Values { return url.Values{"columns": {names}} }

// askNodes finds the nodes that run.
func (p *probe) askNodes(ctx context.Context) {
	if p.api == nil {
		return
	}
	var all []nodeFigures
	err := p.api.query(ctx, columns("name,running,os_pid,uptime,proc_used,run_queue,fd_used,disk_free"), &all, "nodes")
	p.failed(err)
	for _, n := range all {
		if n.Running {
			p.nodes = append(p.nodes, n)
		}
	}
}

// rate is a counter's growth a second, as the management API computes it.
type rate struct {
	Rate *float64 `json:"rate"`
}

// ofTheWhole adds what the management API counts of the whole cluster.
func (p *probe) ofTheWhole(ctx context.Context) {
	if p.prober.plugins || p.api == nil {
		return
	}
	var o struct {
		Totals struct {
			Connections *float64 `json:"connections"`
			Channels    *float64 `json:"channels"`
			Consumers   *float64 `json:"consumers"`
		} `json:"object_totals"`
		Messages struct {
			Publish rate `json:"publish_details"`
			Deliver rate `json:"deliver_get_details"`
		} `json:"message_stats"`
		Churn struct {
			Connections rate `json:"connection_created_details"`
		} `json:"churn_rates"`
	}
	if err := p.api.query(ctx, columns("object_totals,message_stats.publish_details.rate,message_stats.deliver_get_details.rate,"+
		"churn_rates.connection_created_details.rate"), &o, "overview"); err != nil {
		p.failed(err)
		return
	}
	for name, value := range map[drivers.FigureName]*float64{
		drivers.FigureConnections: o.Totals.Connections, drivers.FigureChannels: o.Totals.Channels, drivers.FigureConsumers: o.Totals.Consumers,
		drivers.FigurePublishRate: o.Messages.Publish.Rate, drivers.FigureDeliverRate: o.Messages.Deliver.Rate,
		drivers.FigureConnectionRate: o.Churn.Connections.Rate,
	} {
		if value != nil {
			p.add(name, "", *value)
		}
	}
}

// categories are the names under which RabbitMQ accounts for its memory, of releases 3.8 to 4, as far as they are told apart.
var categories = map[string]drivers.FigureName{
	"connection_readers": drivers.FigureMemoryConnections, "connection_writers": drivers.FigureMemoryConnections,
	"connection_channels": drivers.FigureMemoryConnections, "connection_other": drivers.FigureMemoryConnections,
	"queue_procs": drivers.FigureMemoryQueues, "queue_slave_procs": drivers.FigureMemoryQueues,
	"quorum_queue_procs": drivers.FigureMemoryQueues, "quorum_queue_dlx_procs": drivers.FigureMemoryQueues, "quorum_ets": drivers.FigureMemoryQueues,
	"stream_queue_procs": drivers.FigureMemoryQueues, "stream_queue_replica_reader_procs": drivers.FigureMemoryQueues,
	"stream_queue_coordinator_procs": drivers.FigureMemoryQueues, "msg_index": drivers.FigureMemoryQueues,
	"mnesia": drivers.FigureMemoryMetadata, "metadata_store": drivers.FigureMemoryMetadata, "metadata_store_ets": drivers.FigureMemoryMetadata,
	"binary": drivers.FigureMemoryBinary,
}

// ofMemory adds each node's memory and its categories, or, without the management API, its memory alone.
func (p *probe) ofMemory(ctx context.Context) {
	if p.api == nil {
		for _, s := range p.scrapes {
			if value, said := s.values["rabbitmq_process_resident_memory_bytes"]; said {
				p.add(drivers.FigureMemory, s.node, value)
			}
		}
		return
	}
	p.seldom("memory", func() error {
		answers, errs := make([]map[drivers.FigureName]float64, len(p.nodes)), make([]error, len(p.nodes))
		var wg sync.WaitGroup
		for i, n := range p.nodes {
			wg.Go(func() { answers[i], errs[i] = p.memoryOf(ctx, n.Name) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err // a sum that lacks a node would look like a smaller broker
		}
		for i, n := range p.nodes {
			for name, value := range answers[i] {
				p.add(name, n.Name, value)
			}
		}
		return nil
	})
}

// memoryOf is a node's memory by figure. What the categories leave of it is other, unless Erlang's account of them is more than there is.
func (p *probe) memoryOf(ctx context.Context, node string) (map[drivers.FigureName]float64, error) {
	var n struct {
		Memory map[string]any `json:"memory"`
	}
	query := columns("memory")
	query.Set("memory", "true")
	if err := p.api.query(ctx, query, &n, "nodes", node); err != nil {
		return nil, err
	}
	figures := map[drivers.FigureName]float64{}
	var told float64
	for category, value := range n.Memory {
		name, known := categories[category]
		if bytes, is := value.(float64); is && known {
			figures[name] += bytes
			told += bytes
		}
	}
	totals, _ := n.Memory["total"].(map[string]any)
	for _, measure := range []string{"rss", "allocated"} { // never "erlang": see above
		if value, _ := totals[measure].(float64); value > 0 {
			figures[drivers.FigureMemory] = value
			break
		}
	}
	if rest := figures[drivers.FigureMemory] - told; rest > 0 {
		figures[drivers.FigureMemoryOther] = rest
	}
	return figures, nil
}

// ofBindings adds how many bindings the task's exchanges have.
func (p *probe) ofBindings(ctx context.Context) {
	exchanges := p.options.exchangeNames(p.prober.topology)
	if p.api == nil || p.prober.topology.Name == "" || len(exchanges) != 1 {
		return
	}
	p.seldom("bindings", func() error {
		var all []struct{}
		if err := p.api.query(ctx, columns("vhost"), &all, "exchanges", p.endpoints[0].vhost, exchanges[0], "bindings", "source"); err != nil {
			return fmt.Errorf("list bindings: %w", err)
		}
		p.add(drivers.FigureBindings, "", float64(len(all)))
		return nil
	})
}

// query reads one resource with a query.
func (m *management) query(ctx context.Context, query url.Values, answer any, segments ...string) error {
	return m.send(ctx, http.MethodGet, query, nil, answer, segments...)
}

// isHere tells whether a node's process is on this host: the one of its number runs RabbitMQ, and has done so for as long as the node says.
func (n nodeFigures) isHere() bool {
	p, ok := localProcess(n.PID)
	const apart = 30 * time.Second // what the node says is a few seconds old, and it began to count when it had started
	age := time.Duration(n.Uptime) * time.Millisecond
	return ok && p.rabbit && p.age > age-apart && p.age < age+apart
}

// processorTime is what the node's process has used, user and system.
func (n nodeFigures) processorTime() (time.Duration, bool) {
	p, ok := localProcess(n.PID)
	return p.used, ok && p.rabbit
}
