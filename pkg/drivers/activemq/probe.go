package activemq

import (
	"context"
	"fmt"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// The questions of Probe.
var (
	aboutMemory = question{Type: "read", MBean: "java.lang:type=Memory",
		Attribute: []string{"HeapMemoryUsage", "NonHeapMemoryUsage"}}
	aboutProcess = question{Type: "read", MBean: "java.lang:type=OperatingSystem",
		Attribute: []string{"ProcessCpuTime", "OpenFileDescriptorCount"}}
	aboutStore = question{Type: "read", MBean: brokerBean + ",service=PersistenceAdapter,instanceName=*",
		Attribute: []string{"Size"}}
)

// queueAttributes are the attributes that Probe reads of each of the task's queues.
var queueAttributes = []string{"QueueSize", "InFlightCount", "MemoryUsageByteCount", "EnqueueCount", "DispatchCount"}

// Probe reads metrics from Jolokia. Metrics of the JVM are missing if Jolokia does not permit reading them.
func (s *managedSession) Probe(ctx context.Context) ([]drivers.Metric, error) {
	questions := []question{aboutMemory, aboutProcess, aboutStore}
	task := s.Task.Load()
	if task != nil && task.Existing != "" {
		task = nil // the counters of an existing queue include messages of others
	}
	if task != nil {
		questions = append(questions, question{Type: "read", MBean: queueBeans(task.Name + "."),
			Attribute: queueAttributes})
	}
	broker, replies, err := s.jolokia.ask(ctx, questions...)
	if err != nil {
		return nil, fmt.Errorf("probe ActiveMQ: %w", err)
	}
	metrics := []drivers.Metric{
		{Name: drivers.MetricConnections, Value: broker.Connections},
		{Name: drivers.MetricConsumers, Value: broker.Consumers},
	}
	if broker.Opened != nil {
		metrics = s.grown.AppendMetric(metrics, drivers.MetricConnectionRate, broker.Name, *broker.Opened)
	}
	metrics = append(metrics, memoryMetrics(replies[0])...)
	metrics = append(metrics, s.processMetrics(replies[1], broker.Name)...)
	metrics = append(metrics, storeMetrics(replies[2])...)
	if task != nil {
		metrics = append(metrics, s.queueMetrics(replies[3], broker.Name, task.Subscriptions)...)
	}
	return metrics, nil
}

func memoryMetrics(r reply) []drivers.Metric {
	var answer struct {
		Heap  struct{ Used float64 } `json:"HeapMemoryUsage"`
		Other struct{ Used float64 } `json:"NonHeapMemoryUsage"`
	}
	if r.read(&answer) != nil || answer.Heap.Used == 0 {
		return nil
	}
	return []drivers.Metric{{Name: drivers.MetricMemory, Value: answer.Heap.Used + answer.Other.Used}}
}

// processMetrics includes the CPU from a broker's second answer on.
func (s *managedSession) processMetrics(r reply, broker string) []drivers.Metric {
	var answer struct {
		CPU   float64 `json:"ProcessCpuTime"`
		Files float64 `json:"OpenFileDescriptorCount"`
	}
	if r.read(&answer) != nil {
		return nil
	}
	metrics := []drivers.Metric{{Name: drivers.MetricFileDescriptors, Value: answer.Files}}
	const nanosecond = 1e-9
	return s.grown.AppendMetric(metrics, drivers.MetricCPU, broker, answer.CPU*nanosecond)
}

func storeMetrics(r reply) []drivers.Metric {
	answer := map[string]struct{ Size float64 }{}
	if r.read(&answer) != nil || len(answer) == 0 {
		return nil
	}
	stored := 0.0
	for _, adapter := range answer {
		stored += adapter.Size
	}
	return []drivers.Metric{{Name: drivers.MetricStored, Value: stored}}
}

// queueMetrics returns nothing if no queue exists, because Jolokia then reports an error. Counters start when queues
// are created.
func (s *managedSession) queueMetrics(r reply, broker string, subscriptions int) []drivers.Metric {
	answer := map[string]struct {
		Size       float64 `json:"QueueSize"` // includes messages delivered and not acknowledged
		InFlight   float64 `json:"InFlightCount"`
		Memory     float64 `json:"MemoryUsageByteCount"`
		Enqueued   float64 `json:"EnqueueCount"`
		Dispatched float64 `json:"DispatchCount"`
	}{}
	if r.read(&answer) != nil {
		return nil
	}
	var depth, unacked, memory, enqueued, dispatched float64
	for _, q := range answer {
		depth, unacked, memory = depth+q.Size, unacked+q.InFlight, memory+q.Memory
		enqueued, dispatched = enqueued+q.Enqueued, dispatched+q.Dispatched
	}
	metrics := []drivers.Metric{
		{Name: drivers.MetricQueues, Value: float64(len(answer))},
		{Name: drivers.MetricQueueDepth, Value: depth},
		{Name: drivers.MetricUnacked, Value: unacked},
		{Name: drivers.MetricMemoryQueues, Value: memory},
	}
	// Each message is in a queue of every subscription.
	metrics = s.grown.AppendMetric(metrics, drivers.MetricPublishRate, broker, enqueued/float64(max(1, subscriptions)))
	return s.grown.AppendMetric(metrics, drivers.MetricDeliverRate, broker, dispatched)
}
