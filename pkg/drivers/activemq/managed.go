package activemq

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockstep/pkg/drivers"
)

// managedSession is a session that can ask the broker's Jolokia.
type managedSession struct {
	*session
	jolokia *jolokia

	mu     sync.Mutex
	cpu    float64 // nanoseconds that the broker's process had used
	cpuAt  time.Time
	cpuWho string // the server that said so
}

// Close ends every connection.
func (s *managedSession) Close() error {
	s.jolokia.close()
	return s.session.Close()
}

// Teardown removes the queues, with what is in them.
func (s *managedSession) Teardown(ctx context.Context, t drivers.Topology) error {
	if err := s.jolokia.tell(ctx, removeQueue, queues(t)); err != nil {
		return fmt.Errorf("tear down: %w", err)
	}
	return nil
}

// removeQueue does nothing if the queue is not there.
const removeQueue = "removeQueue(java.lang.String)"

// queueBeans matches the queues whose names begin so.
func queueBeans(prefix string) string {
	return brokerBean + ",destinationType=Queue,destinationName=" + prefix + "*"
}

// Leftovers lists queues.
func (s *managedSession) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	_, replies, err := s.jolokia.ask(ctx, question{Type: "search", MBean: queueBeans(prefix)})
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	var beans []string
	if err := replies[0].read(&beans); err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	var found []drivers.Leftover
	for _, b := range beans {
		if name := destination(b); strings.HasPrefix(name, prefix) {
			found = append(found, drivers.Leftover{Kind: "queue", Name: name})
		}
	}
	slices.SortFunc(found, func(a, b drivers.Leftover) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// destination finds the name of a queue in that of its MBean.
func destination(bean string) string {
	_, properties, _ := strings.Cut(bean, ":")
	for p := range strings.SplitSeq(properties, ",") {
		if name, ok := strings.CutPrefix(p, "destinationName="); ok {
			return name
		}
	}
	return ""
}

// Sweep removes queues, with what is in them.
func (s *managedSession) Sweep(ctx context.Context, these []drivers.Leftover) error {
	var names []string
	for _, l := range these {
		names = append(names, l.Name)
	}
	if err := s.jolokia.tell(ctx, removeQueue, names); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// Describe adds what Jolokia knows.
func (s *managedSession) Describe(ctx context.Context) (drivers.Description, error) {
	d, err := s.session.Describe(ctx)
	if err != nil {
		return d, err
	}
	broker, _, err := s.jolokia.ask(ctx)
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe ActiveMQ: %w", err)
	}
	d.Members = []string{broker.Name}
	d.Settings["persistence"] = strconv.FormatBool(broker.Persistent)
	d.Settings["memory_limit"] = strconv.FormatInt(broker.MemoryLimit, 10)
	d.Settings["store_limit"] = strconv.FormatInt(broker.StoreLimit, 10)
	return d, nil
}

// The questions of Probe.
var (
	aboutMemory  = question{Type: "read", MBean: "java.lang:type=Memory", Attribute: []string{"HeapMemoryUsage", "NonHeapMemoryUsage"}}
	aboutProcess = question{Type: "read", MBean: "java.lang:type=OperatingSystem", Attribute: []string{"ProcessCpuTime", "OpenFileDescriptorCount"}}
	aboutStore   = question{Type: "read", MBean: brokerBean + ",service=PersistenceAdapter,instanceName=*", Attribute: []string{"Size"}}
)

// Probe asks once. A Jolokia that keeps the JVM's own figures to itself leaves those out.
func (s *managedSession) Probe(ctx context.Context) ([]drivers.Figure, error) {
	questions := []question{aboutMemory, aboutProcess, aboutStore}
	task := s.task.Load()
	if task != nil {
		questions = append(questions, question{Type: "read", MBean: queueBeans(task.Name + "."), Attribute: []string{"QueueSize", "InFlightCount"}})
	}
	broker, replies, err := s.jolokia.ask(ctx, questions...)
	if err != nil {
		return nil, fmt.Errorf("probe ActiveMQ: %w", err)
	}
	figures := []drivers.Figure{
		{Name: drivers.FigureConnections, Value: broker.Connections},
		{Name: drivers.FigureConsumers, Value: broker.Consumers},
	}
	figures = append(figures, memoryFigures(replies[0])...)
	figures = append(figures, s.processFigures(replies[1], broker.Name)...)
	figures = append(figures, storeFigures(replies[2])...)
	if task != nil {
		figures = append(figures, queueFigures(replies[3])...)
	}
	return figures, nil
}

func memoryFigures(r reply) []drivers.Figure {
	var said struct {
		Heap  struct{ Used float64 } `json:"HeapMemoryUsage"`
		Other struct{ Used float64 } `json:"NonHeapMemoryUsage"`
	}
	if r.read(&said) != nil || said.Heap.Used == 0 {
		return nil
	}
	return []drivers.Figure{{Name: drivers.FigureMemory, Value: said.Heap.Used + said.Other.Used}}
}

// processFigures has the CPU from the second answer of a broker on.
func (s *managedSession) processFigures(r reply, broker string) []drivers.Figure {
	var said struct {
		CPU   float64 `json:"ProcessCpuTime"`
		Files float64 `json:"OpenFileDescriptorCount"`
	}
	now := time.Now()
	if r.read(&said) != nil {
		return nil
	}
	figures := []drivers.Figure{{Name: drivers.FigureFileDescriptors, Value: said.Files}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if elapsed := now.Sub(s.cpuAt); s.cpuWho == broker && elapsed > 0 && said.CPU >= s.cpu {
		figures = append(figures, drivers.Figure{Name: drivers.FigureCPU, Value: (said.CPU - s.cpu) / float64(elapsed)})
	}
	s.cpu, s.cpuAt, s.cpuWho = said.CPU, now, broker
	return figures
}

func storeFigures(r reply) []drivers.Figure {
	said := map[string]struct{ Size float64 }{}
	if r.read(&said) != nil || len(said) == 0 {
		return nil
	}
	stored := 0.0
	for _, adapter := range said {
		stored += adapter.Size
	}
	return []drivers.Figure{{Name: drivers.FigureStored, Value: stored}}
}

// queueFigures are none when no queue matches, which Jolokia calls an error.
func queueFigures(r reply) []drivers.Figure {
	said := map[string]struct {
		Size     float64 `json:"QueueSize"` // those delivered and not acknowledged included
		InFlight float64 `json:"InFlightCount"`
	}{}
	if r.read(&said) != nil {
		return nil
	}
	depth, unacked := 0.0, 0.0
	for _, q := range said {
		depth, unacked = depth+q.Size, unacked+q.InFlight
	}
	return []drivers.Figure{
		{Name: drivers.FigureQueues, Value: float64(len(said))},
		{Name: drivers.FigureQueueDepth, Value: depth},
		{Name: drivers.FigureUnacked, Value: unacked},
	}
}
