package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"lockstep/pkg/drivers"
)

// RabbitMQ tells its metrics in three places, which differ in how old they are. Seen with RabbitMQ 3.10:
//
//   - The management API answers /nodes, /overview and /queues from what it gathers every five seconds, whatever the
//     interval of statistics: counts of connections and processes, depths and rates are up to five seconds old, and
//     those of a quorum queue ten. A node's memory by category is computed as it is asked for, and costs the node about
//     15 ms of its processor. It has no CPU.
//   - The Prometheus plugin's counts of processes, connections, channels and messages are of the moment; depths, file
//     descriptors and resident memory are as old as the interval of statistics (five seconds unless the server is told
//     otherwise). It costs a node about 8 ms.
//   - The operating system knows the processor time of the node's process, where that is on this host.
//
// So a metric comes from the Prometheus plugin, where the options lead to that of every node, else from the management
// API; memory and its categories from the management API first. A metric keeps to one source as long as the session
// lasts.
//
// The plugin's erlang_vm_statistics_runtime_milliseconds counts user time alone (34 s of 54 s were seen): the CPU from
// it, where the process is on another host, is too low. The host's metric, for which the matrix names the broker's
// process, is to be preferred. The "erlang" total of memory counts buffers of sockets that the system has never given
// out (2.2 GB of a process of 221 MB were seen): memory is what the process has, and its categories are shares of
// Erlang's own account, whose sum may differ.

// errNoMetrics is what a session without either API answers.
var errNoMetrics = fmt.Errorf("%w: give management, and prometheus for metrics of the moment", drivers.ErrUnsupported)

// prober is what a session remembers between probes.
type prober struct {
	mu       sync.Mutex
	topology drivers.Topology // whose queues are the task's own; none before Setup
	begun    bool
	said     bool // that something is missing
	plugins  bool // metrics come from the Prometheus plugins
	local    bool // CPU comes from this host
	counters map[string]counter
	costly   map[string]time.Time // when what costs the broker may be asked again
}

// counter is what grew until a time.
type counter struct {
	at    time.Time
	value float64
}

// probe is one asking.
type probe struct {
	*session
	figures []drivers.Metric
	nodes   []nodeMetrics // that run; without the management API none
	scrapes []scrape      // of every node, or none
	errs    []error
}

// Probe asks once; see above for where. It fails if nothing could be asked at all.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	if s.api == nil && s.metrics == nil {
		return nil, fmt.Errorf("ask RabbitMQ for its metrics: %w", errNoMetrics)
	}
	s.prober.mu.Lock()
	defer s.prober.mu.Unlock()
	if s.isClosed() {
		return nil, fmt.Errorf("ask RabbitMQ for its metrics: %w", drivers.ErrClosed)
	}
	p := &probe{session: s}
	p.askNodes(ctx)
	p.scrapeAll(ctx)
	if !s.prober.begun {
		if err := errors.Join(p.errs...); err != nil { // where metrics come from is decided with all of it there
			return nil, fmt.Errorf("ask RabbitMQ for its metrics: %w", err)
		}
		s.prober.begin(p)
	}
	p.ofNodes()
	p.ofTheWhole(ctx)
	p.ofMemory(ctx)
	p.ofCPU()
	p.ofQueues(ctx)
	p.ofBindings(ctx)
	err := errors.Join(p.errs...)
	if len(p.figures) == 0 && err != nil {
		return nil, fmt.Errorf("ask RabbitMQ for its metrics: %w", err)
	}
	if err != nil && ctx.Err() == nil && !s.prober.said && s.env.Event != nil {
		s.prober.said = true
		s.env.Event(drivers.EventNotice, fmt.Sprintf("some of RabbitMQ's metrics are missing: %v", err))
	}
	return p.figures, nil
}

// begin decides, once, where metrics come from.
func (r *prober) begin(p *probe) {
	r.begun = true
	r.local = len(p.nodes) > 0 && !slices.ContainsFunc(p.nodes, func(n nodeMetrics) bool { return !n.isHere() })
	r.plugins = len(p.scrapes) > 0
	if p.metrics != nil && !r.plugins && p.env.Event != nil {
		p.env.Event(drivers.EventNotice, fmt.Sprintf(
			"prometheus leads to fewer nodes than the %d of the cluster: metrics come from the management API; give one url for each node", len(p.nodes)))
	}
}

// own says which topology's queues are the task's.
func (r *prober) own(t drivers.Topology) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topology = t
}

func (p *probe) add(name drivers.MetricName, node string, value float64) {
	p.figures = append(p.figures, drivers.Metric{Name: name, Node: node, Value: value})
}

func (p *probe) failed(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// since adds what a counter grew by a second since the last probe, times factor; the first time, and after a restart of
// the node, nothing.
func (p *probe) since(name drivers.MetricName, node string, now counter, factor float64) {
	key := string(name) + " " + node
	before, known := p.prober.counters[key]
	if p.prober.counters == nil {
		p.prober.counters = map[string]counter{}
	}
	p.prober.counters[key] = now
	if elapsed := now.at.Sub(before.at).Seconds(); known && elapsed > 0 && now.value >= before.value {
		p.add(name, node, (now.value-before.value)*factor/elapsed)
	}
}

// costlyPart is the part of the time that the broker may take to answer one kind of costly question.
const costlyPart = 0.05

// seldom asks what costs the broker something, unless that was too much the last time to be asked again so soon.
func (p *probe) seldom(what string, ask func() error) {
	now := time.Now()
	if now.Before(p.prober.costly[what]) {
		return
	}
	err := ask()
	took := time.Since(now)
	if p.prober.costly == nil {
		p.prober.costly = map[string]time.Time{}
	}
	p.prober.costly[what] = now.Add(time.Duration(float64(took) / costlyPart))
	p.failed(err)
}

// scrapeAll asks all Prometheus plugins at once. One that does not answer makes the sums unknown, unless its node is
// known not to run.
func (p *probe) scrapeAll(ctx context.Context) {
	if p.metrics == nil || p.prober.begun && !p.prober.plugins {
		return
	}
	scrapes, errs := make([]scrape, len(p.metrics.nodes)), make([]error, len(p.metrics.nodes))
	var wg sync.WaitGroup
	for i, n := range p.metrics.nodes {
		wg.Go(func() { scrapes[i], errs[i] = p.metrics.scrape(ctx, n) })
	}
	wg.Wait()
	answered := map[string]scrape{}
	for i, s := range scrapes {
		if errs[i] == nil {
			answered[s.node] = s
		}
	}
	whole := len(answered) == len(scrapes)
	if p.api != nil {
		whole = len(p.nodes) > 0 && !slices.ContainsFunc(p.nodes,
			func(n nodeMetrics) bool { return answered[n.Name].node == "" })
	}
	if whole {
		for _, node := range slices.Sorted(maps.Keys(answered)) {
			p.scrapes = append(p.scrapes, answered[node])
		}
		return
	}
	p.failed(errors.Join(errs...))
}

// ofNodes adds what each node says of itself.
func (p *probe) ofNodes() {
	if p.prober.plugins {
		for _, s := range p.scrapes {
			p.ofScrape(s)
		}
		return
	}
	for _, n := range p.nodes {
		n.each(func(name drivers.MetricName, value float64) { p.add(name, n.Name, value) })
	}
}

func (p *probe) ofScrape(s scrape) {
	for _, f := range []struct {
		name   drivers.MetricName
		metric string
	}{
		{drivers.MetricErlangProcesses, "erlang_vm_process_count"},
		{drivers.MetricRunQueue, "erlang_vm_statistics_run_queues_length"},
		{drivers.MetricFileDescriptors, "rabbitmq_process_open_fds"},
		{drivers.MetricConnections, "rabbitmq_connections"},
		{drivers.MetricChannels, "rabbitmq_channels"},
		{drivers.MetricConsumers, "rabbitmq_consumers"},
		{drivers.MetricDiskFree, "rabbitmq_disk_space_available_bytes"},
	} {
		if value, said := s.values[f.metric]; said {
			p.add(f.name, s.node, value)
		}
	}
	for _, f := range []struct {
		name   drivers.MetricName
		metric string
	}{
		{drivers.MetricPublishRate, "rabbitmq_global_messages_received_total"},
		{drivers.MetricDeliverRate, "rabbitmq_global_messages_delivered_total"},
		{drivers.MetricConnectionRate, "rabbitmq_connections_opened_total"},
	} {
		if value, said := s.values[f.metric]; said {
			p.since(f.name, s.node, counter{s.at, value}, 1)
		}
	}
}

// ofCPU adds the cores that each node used since the last probe.
func (p *probe) ofCPU() {
	if p.prober.local {
		for _, n := range p.nodes {
			if used, ok := n.processorTime(); ok {
				p.since(drivers.MetricCPU, n.Name, counter{time.Now(), used.Seconds()}, 1)
			}
		}
		return
	}
	for _, s := range p.scrapes {
		if ms, said := s.values["erlang_vm_statistics_runtime_milliseconds"]; said {
			p.since(drivers.MetricCPU, s.node, counter{s.at, ms}, 1e-3)
		}
	}
}
