package activemq

import (
	"context"
	"fmt"

	"lockstep/pkg/drivers"
)

// The questions of Probe.
var (
	aboutMemory  = question{Type: "read", MBean: "java.lang:type=Memory", Attribute: []string{"HeapMemoryUsage", "NonHeapMemoryUsage"}}
	aboutProcess = question{Type: "read", MBean: "java.lang:type=OperatingSystem", Attribute: []string{"ProcessCpuTime", "OpenFileDescriptorCount"}}
	aboutStore   = question{Type: "read", MBean: brokerBean + ",service=PersistenceAdapter,instanceName=*", Attribute: []string{"Size"}}
)

// queueAttributes are what is asked of each of the task's queues.
var queueAttributes = []string{"QueueSize", "InFlightCount", "MemoryUsageByteCount", "EnqueueCount", "DispatchCount"}

// Probe asks once. A Jolokia that keeps the JVM's own figures to itself leaves those out.
func (s *managedSession) Probe(ctx context.Context) ([]drivers.Figure, error) {
	questions := []question{aboutMemory, aboutProcess, aboutStore}
	task := s.task.Load()
	if task != nil {
		questions = append(questions, question{Type: "read", MBean: queueBeans(task.Name + "."), Attribute: queueAttributes})
	}
	broker, replies, err := s.jolokia.ask(ctx, questions...)
	if err != nil {
		return nil, fmt.Errorf("probe ActiveMQ: %w", err)
	}
	figures := []drivers.Figure{
		{Name: drivers.FigureConnections, Value: broker.Connections},
		{Name: drivers.FigureConsumers, Value: broker.Consumers},
	}
	if broker.Opened != nil {
		figures = append(figures, s.rate(drivers.FigureConnectionRate, broker.Name, *broker.Opened)...)
	}
	figures = append(figures, memoryFigures(replies[0])...)
	figures = append(figures, s.processFigures(replies[1], broker.Name)...)
	figures = append(figures, storeFigures(replies[2])...)
	if task != nil {
		figures = append(figures, s.queueFigures(replies[3], broker.Name)...)
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
	if r.read(&said) != nil {
		return nil
	}
	figures := []drivers.Figure{{Name: drivers.FigureFileDescriptors, Value: said.Files}}
	const nanosecond = 1e-9
	return append(figures, s.rate(drivers.FigureCPU, broker, said.CPU*nanosecond)...)
}

// rate is a figure once a counter of a broker is known to have grown.
func (s *managedSession) rate(name drivers.FigureName, broker string, counter float64) []drivers.Figure {
	if rate, known := s.grown.PerSecond(string(name)+" "+broker, counter); known {
		return []drivers.Figure{{Name: name, Value: rate}}
	}
	return nil
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

// queueFigures are none when no queue matches, which Jolokia calls an error. Counters are since the queues were made.
func (s *managedSession) queueFigures(r reply, broker string) []drivers.Figure {
	said := map[string]struct {
		Size       float64 `json:"QueueSize"` // those delivered and not acknowledged included
		InFlight   float64 `json:"InFlightCount"`
		Memory     float64 `json:"MemoryUsageByteCount"`
		Enqueued   float64 `json:"EnqueueCount"`
		Dispatched float64 `json:"DispatchCount"`
	}{}
	if r.read(&said) != nil {
		return nil
	}
	var depth, unacked, memory, enqueued, dispatched float64
	for _, q := range said {
		depth, unacked, memory = depth+q.Size, unacked+q.InFlight, memory+q.Memory
		enqueued, dispatched = enqueued+q.Enqueued, dispatched+q.Dispatched
	}
	figures := []drivers.Figure{
		{Name: drivers.FigureQueues, Value: float64(len(said))},
		{Name: drivers.FigureQueueDepth, Value: depth},
		{Name: drivers.FigureUnacked, Value: unacked},
		{Name: drivers.FigureMemoryQueues, Value: memory},
	}
	figures = append(figures, s.rate(drivers.FigurePublishRate, broker, enqueued)...)
	return append(figures, s.rate(drivers.FigureDeliverRate, broker, dispatched)...)
}
