package rabbitmq

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// nodeMetrics are the metrics of a node in the management API. Missing fields are nil.
type nodeMetrics struct {
	Name      string   `json:"name"`
	Running   bool     `json:"running"`
	PID       string   `json:"os_pid"`
	Uptime    int64    `json:"uptime"` // ms
	Processes *float64 `json:"proc_used"`
	RunQueue  *float64 `json:"run_queue"`
	Files     *float64 `json:"fd_used"`
	DiskFree  *float64 `json:"disk_free"`
}

// askNodes reads the nodes that run.
func (p *probe) askNodes(ctx context.Context) {
	if p.session.api == nil {
		return
	}
	err := p.session.api.get(ctx, columns("name,running,os_pid,uptime,proc_used,run_queue,fd_used,disk_free"), &p.nodes,
		"nodes")
	p.failed(err)
	p.nodes = slices.DeleteFunc(p.nodes, func(n nodeMetrics) bool { return !n.Running })
}

// rate is the growth of a counter per second, as the management API computes it.
type rate struct {
	Rate *float64 `json:"rate"`
}

// ofTheWhole adds the management API's metrics of the whole cluster.
func (p *probe) ofTheWhole(ctx context.Context) {
	if p.session.prober.plugins || p.session.api == nil {
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
	if err := p.session.api.get(ctx,
		columns("object_totals,message_stats.publish_details.rate,message_stats.deliver_get_details.rate,"+
			"churn_rates.connection_created_details.rate"), &o, "overview"); err != nil {
		p.failed(err)
		return
	}
	p.addKnown("", map[string]*float64{
		drivers.MetricConnections: o.Totals.Connections, drivers.MetricChannels: o.Totals.Channels,
		drivers.MetricConsumers:   o.Totals.Consumers,
		drivers.MetricPublishRate: o.Messages.Publish.Rate, drivers.MetricDeliverRate: o.Messages.Deliver.Rate,
		drivers.MetricConnectionRate: o.Churn.Connections.Rate,
	})
}

// categories maps the categories of RabbitMQ's memory accounting (releases 3.8 to 4) to metrics. All others are part of
// metricMemoryOther.
var categories = map[string]string{
	"connection_readers": metricMemoryConnections, "connection_writers": metricMemoryConnections,
	"connection_channels": metricMemoryConnections, "connection_other": metricMemoryConnections,
	"queue_procs": drivers.MetricMemoryQueues, "queue_slave_procs": drivers.MetricMemoryQueues,
	"quorum_queue_procs": drivers.MetricMemoryQueues, "quorum_queue_dlx_procs": drivers.MetricMemoryQueues,
	"quorum_ets":         drivers.MetricMemoryQueues,
	"stream_queue_procs": drivers.MetricMemoryQueues, "stream_queue_replica_reader_procs": drivers.MetricMemoryQueues,
	"stream_queue_coordinator_procs": drivers.MetricMemoryQueues, "msg_index": drivers.MetricMemoryQueues,
	"mnesia": metricMemoryMetadata, "metadata_store": metricMemoryMetadata,
	"metadata_store_ets": metricMemoryMetadata,
	"binary":             metricMemoryBinary,
}

// ofMemory adds each node's memory and its categories. Without the management API it adds only the memory.
func (p *probe) ofMemory(ctx context.Context) {
	if p.session.api == nil {
		for _, s := range p.scrapes {
			if value, found := s.values["rabbitmq_process_resident_memory_bytes"]; found {
				p.add(drivers.MetricMemory, s.node, value)
			}
		}
		return
	}
	p.seldom("memory", func() error {
		answers := make([]map[string]float64, len(p.nodes))
		err := kit.Each(len(p.nodes), func(i int) (err error) {
			answers[i], err = p.session.memoryOf(ctx, p.nodes[i].Name)
			return err
		})
		if err != nil {
			return err // a sum without one node would look like a smaller broker
		}
		for i, n := range p.nodes {
			for name, value := range answers[i] {
				p.add(name, n.Name, value)
			}
		}
		return nil
	})
}

// memoryOf returns a node's memory by metric. metricMemoryOther is the memory that no category explains; it is missing
// if the categories exceed the total.
func (s *session) memoryOf(ctx context.Context, node string) (map[string]float64, error) {
	var n struct {
		Memory map[string]any `json:"memory"`
	}
	query := columns("memory")
	query.Set("memory", "true")
	if err := s.api.get(ctx, query, &n, "nodes", node); err != nil {
		return nil, err
	}
	metrics := map[string]float64{}
	var counted float64
	for category, value := range n.Memory {
		name, known := categories[category]
		if bytes, is := value.(float64); is && known {
			metrics[name] += bytes
			counted += bytes
		}
	}
	totals, _ := n.Memory["total"].(map[string]any)
	for _, measure := range []string{"rss", "allocated"} { // not "erlang": see the top of probe.go
		if value, _ := totals[measure].(float64); value > 0 {
			metrics[drivers.MetricMemory] = value
			break
		}
	}
	if rest := metrics[drivers.MetricMemory] - counted; rest > 0 {
		metrics[metricMemoryOther] = rest
	}
	return metrics, nil
}

// ofBindings adds the number of bindings of the task's exchange. With several exchanges it adds nothing.
func (p *probe) ofBindings(ctx context.Context) {
	s := p.session
	if s.api == nil || p.task == nil {
		return
	}
	exchanges := s.options.exchangeNames(*p.task)
	if len(exchanges) != 1 {
		return
	}
	p.seldom("bindings", func() error {
		var all []struct{}
		if err := s.api.get(ctx, columns("vhost"), &all, "exchanges", s.endpoints[0].vhost, exchanges[0], "bindings",
			"source"); err != nil {
			return fmt.Errorf("list bindings: %w", err)
		}
		p.add(metricBindings, "", float64(len(all)))
		return nil
	})
}

// isHere reports whether a node's process is on this host. That is so if the process with its PID runs RabbitMQ and has
// run for as long as the node reports.
func (n nodeMetrics) isHere() bool {
	p, ok := localProcess(n.PID)
	// the node's uptime is a few seconds old, and its clock started after the process
	const apart = 30 * time.Second
	age := time.Duration(n.Uptime) * time.Millisecond
	return ok && p.rabbit && p.age > age-apart && p.age < age+apart
}

// processorTime returns the user and system time that the node's process has used.
func (n nodeMetrics) processorTime() (time.Duration, bool) {
	p, ok := localProcess(n.PID)
	return p.used, ok && p.rabbit
}
