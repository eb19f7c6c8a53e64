package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// RabbitMQ's metrics come from three sources, which differ in age. Measured with RabbitMQ 3.10:
//
//   - The management API answers /nodes, /overview and /queues from data that it gathers every five seconds, whatever
//     the interval of statistics. Counts of connections and processes, depths and rates are up to five seconds old.
//     Those of a quorum queue are up to ten seconds old. A node's memory by category is computed for each request,
//     which costs the node about 15 ms of processor time. It has no CPU metric.
//   - The Prometheus plugin's counts of processes, connections, channels and messages are current. Depths, file
//     descriptors and resident memory are as old as the interval of statistics (five seconds by default). A request
//     costs a node about 8 ms.
//   - The operating system has the processor time of the node's process, if that runs on this host.
//
// So a metric comes from the Prometheus plugins if the options name that of every node, otherwise from the management
// API. Memory and its categories come from the management API if there is one. The source of a metric does not change
// during a session.
//
// The plugin's erlang_vm_statistics_runtime_milliseconds counts user time only (34 s of 54 s in a measurement). So the
// CPU metric is too low if the process is on another host. The host metrics of the broker's process are better; the
// matrix has to name that process. The "erlang" total of memory includes socket buffers that the system never allocated
// (2.2 GB for a process of 221 MB in a measurement). So the memory metric is the memory of the process. Its categories
// are from Erlang's accounting, and their sum may differ.

// The names of metrics that only RabbitMQ has.
const (
	metricMemoryConnections = "memory.connections"
	metricMemoryMetadata    = "memory.metadata"
	metricMemoryBinary      = "memory.binary"
	metricMemoryOther       = "memory.other"
	metricErlangProcesses   = "erlang_processes"
	metricBindings          = "bindings"
)

func declaredMetrics() []drivers.MetricInfo {
	memory := func(name, of string) drivers.MetricInfo {
		return drivers.MetricInfo{Name: name, Unit: "bytes", Doc: "memory of the broker for " + of, Sum: true,
			LowerIsBetter: true}
	}
	return append([]drivers.MetricInfo{
		memory(metricMemoryConnections, "connections and channels"),
		memory(metricMemoryMetadata, "bindings and other definitions"),
		memory(metricMemoryBinary, "message bodies"),
		memory(metricMemoryOther, "everything else"),
		{Name: metricErlangProcesses, Unit: "count", Doc: "Erlang processes", Sum: true},
		{Name: metricBindings, Unit: "count", Doc: "bindings of the task's own exchange", Sum: true, OfTask: true},
	}, drivers.SharedMetrics(drivers.MetricMemory, drivers.MetricMemoryQueues, drivers.MetricCPU,
		drivers.MetricRunQueue, drivers.MetricFileDescriptors, drivers.MetricConnections, drivers.MetricChannels,
		drivers.MetricConsumers, drivers.MetricQueues, drivers.MetricQueueDepth, drivers.MetricUnacked,
		drivers.MetricPublishRate, drivers.MetricDeliverRate, drivers.MetricConnectionRate, drivers.MetricDiskFree,
		drivers.MetricUnderReplicated)...)
}

var errNoMetrics = fmt.Errorf("%w: give management, and prometheus for metrics of the moment", drivers.ErrUnsupported)

// prober is the state that a session keeps between probes.
type prober struct {
	mu       sync.Mutex
	begun    bool
	notified bool // the notice about missing metrics was sent
	plugins  bool // metrics come from the Prometheus plugins
	local    bool // CPU comes from this host
	grown    kit.Rates
	costly   map[string]time.Time // by kind of request: when it may be sent again (see seldom)
}

// probe is the state of one call of Probe.
type probe struct {
	session *session
	task    *drivers.Topology // nil before Setup
	metrics []drivers.Metric
	nodes   []nodeMetrics // running nodes; empty without the management API
	scrapes []scrape      // of all running nodes, or empty
	errs    []error
}

// Probe returns the metrics that are available; see above for their sources. It fails only if there are none. The first
// call also fails if any source fails. Missing metrics are reported once, by a notice.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	if s.api == nil && len(s.plugins) == 0 {
		return nil, fmt.Errorf("query RabbitMQ for its metrics: %w", errNoMetrics)
	}
	s.prober.mu.Lock()
	defer s.prober.mu.Unlock()
	p := &probe{session: s, task: s.task.Load()}
	p.askNodes(ctx)
	p.scrapeAll(ctx)
	if !s.prober.begun {
		if err := errors.Join(p.errs...); err != nil { // begin needs the results of all sources
			return nil, fmt.Errorf("query RabbitMQ for its metrics: %w", err)
		}
		s.prober.begin(p)
	}
	p.ofNodes() // rates first, before further requests
	p.ofCPU()
	p.ofTheWhole(ctx)
	p.ofMemory(ctx)
	p.ofQueues(ctx)
	p.ofBindings(ctx)
	err := errors.Join(p.errs...)
	if len(p.metrics) == 0 && err != nil {
		return nil, fmt.Errorf("query RabbitMQ for its metrics: %w", err)
	}
	if err != nil && ctx.Err() == nil && !s.prober.notified {
		s.prober.notified = true
		s.env.Event(drivers.EventNotice, fmt.Sprintf("some of RabbitMQ's metrics are missing: %v", err))
	}
	return p.metrics, nil
}

// begin decides which sources to use for the rest of the session.
func (r *prober) begin(p *probe) {
	r.begun = true
	r.local = len(p.nodes) > 0 && !slices.ContainsFunc(p.nodes, func(n nodeMetrics) bool { return !n.isHere() })
	r.plugins = len(p.scrapes) > 0
	if len(p.session.plugins) > 0 && !r.plugins {
		p.session.env.Event(drivers.EventNotice, fmt.Sprintf(
			"prometheus leads to fewer nodes than the %d of the cluster: metrics come from the management API; give one url for each node", len(p.nodes)))
	}
}

func (p *probe) add(name string, node string, value float64) {
	p.metrics = append(p.metrics, drivers.Metric{Name: name, Node: node, Value: value})
}

// addKnown adds the metrics that are not nil.
func (p *probe) addKnown(node string, values map[string]*float64) {
	for name, value := range values {
		if value != nil {
			p.add(name, node, *value)
		}
	}
}

func (p *probe) failed(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// since adds the growth of a counter per second since the last probe. It adds nothing in the first probe, and after a
// restart of the node.
func (p *probe) since(name string, node string, value float64) {
	if rate, known := p.session.prober.grown.PerSecond(name+" "+node, value); known {
		p.add(name, node, rate)
	}
}

// costlyPart is the maximum share of the time that the broker may spend on one kind of expensive request.
const costlyPart = 0.05

// seldom calls ask, which is an expensive request, unless less than duration/costlyPart has passed since the last such
// request.
func (p *probe) seldom(what string, ask func() error) {
	now, costly := time.Now(), p.session.prober.costly
	if now.Before(costly[what]) {
		return
	}
	err := ask()
	took := time.Since(now)
	costly[what] = now.Add(time.Duration(float64(took) / costlyPart))
	p.failed(err)
}

// scrapeAll reads all Prometheus plugins in parallel. It keeps no results if a plugin does not answer, because sums
// would be incomplete, unless the plugin's node is known not to run.
func (p *probe) scrapeAll(ctx context.Context) {
	s := p.session
	if len(s.plugins) == 0 || s.prober.begun && !s.prober.plugins {
		return
	}
	scrapes := make([]scrape, len(s.plugins))
	err := kit.Each(len(scrapes), func(i int) (err error) {
		scrapes[i], err = s.scrape(ctx, s.plugins[i])
		return err
	})
	answered := map[string]scrape{}
	for _, one := range scrapes {
		if one.node != "" {
			answered[one.node] = one
		}
	}
	whole := len(answered) == len(scrapes)
	if s.api != nil {
		whole = len(p.nodes) > 0 && !slices.ContainsFunc(p.nodes,
			func(n nodeMetrics) bool { return answered[n.Name].node == "" })
	}
	if whole {
		p.scrapes = slices.SortedFunc(maps.Values(answered), func(a, b scrape) int { return strings.Compare(a.node, b.node) })
		return
	}
	p.failed(err)
}

// ofNodes adds the metrics of the individual nodes.
func (p *probe) ofNodes() {
	if p.session.prober.plugins {
		for _, s := range p.scrapes {
			p.ofScrape(s)
		}
		return
	}
	for _, n := range p.nodes {
		p.addKnown(n.Name, map[string]*float64{
			metricErlangProcesses: n.Processes, drivers.MetricRunQueue: n.RunQueue,
			drivers.MetricFileDescriptors: n.Files, drivers.MetricDiskFree: n.DiskFree,
		})
	}
}

func (p *probe) ofScrape(s scrape) {
	for metric, value := range s.values {
		switch f := scraped[metric]; {
		case f.rate:
			p.since(f.name, s.node, value)
		case f.name != "":
			p.add(f.name, s.node, value)
		}
	}
}

// ofCPU adds the number of cores that each node used on average since the last probe.
func (p *probe) ofCPU() {
	if p.session.prober.local {
		for _, n := range p.nodes {
			if used, ok := n.processorTime(); ok {
				p.since(drivers.MetricCPU, n.Name, used.Seconds())
			}
		}
		return
	}
	for _, s := range p.scrapes {
		if ms, found := s.values["erlang_vm_statistics_runtime_milliseconds"]; found {
			p.since(drivers.MetricCPU, s.node, ms/1000)
		}
	}
}
