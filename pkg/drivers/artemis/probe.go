package artemis

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// maxQueues is the maximum number of the task's queues for which Probe returns metrics of queues.
const maxQueues = 1000

// broad maps attributes of the broker to metrics of the whole broker.
var broad = map[string]string{
	"AddressMemoryUsage": drivers.MetricMemoryQueues,
	"ConnectionCount":    drivers.MetricConnections,
	"SessionCount":       drivers.MetricChannels,
	"TotalConsumerCount": drivers.MetricConsumers,
}

// Other attributes that Probe reads.
const (
	opened = "TotalConnectionCount" // since the broker started
	synced = "ReplicaSync"
)

// Probe reads metrics through management, on a connection outside the measured path. MetricMemoryQueues is the memory
// of the messages in all addresses. The broker reports neither the memory of its process nor its bytes on disk.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	var calls []call
	for name := range broad {
		calls = append(calls, attribute("broker", name))
	}
	calls = append(calls, attribute("broker", opened))
	task := s.Task.Load()
	if task != nil && task.Existing != "" {
		task = nil // the counters of an existing queue include messages of others
	}
	if task != nil && s.options.HA == replication {
		calls = append(calls, attribute("broker", synced))
	}
	if task != nil {
		filter := text(map[string]string{"field": "name", "operation": "CONTAINS", "value": task.Name + "."})
		calls = append(calls, operation("broker", "listQueues", filter, 1, maxQueues))
	}
	answers, err := s.manage(ctx, calls...)
	if err != nil {
		return nil, fmt.Errorf("probe Artemis: %w", err)
	}
	var metrics []drivers.Metric
	for i, c := range calls {
		var n float64
		if name, ok := broad[c.attribute]; ok && answers[i].value(&n) == nil {
			metrics = append(metrics, drivers.Metric{Name: name, Value: n})
		}
		if c.attribute == opened && answers[i].value(&n) == nil {
			metrics = s.grown.AppendMetric(metrics, drivers.MetricConnectionRate, "", n)
		}
	}
	if task == nil {
		return metrics, nil
	}
	sum, known := sumQueues(answers[len(calls)-1], task.Name+".")
	if !known {
		return metrics, nil
	}
	metrics = append(metrics,
		drivers.Metric{Name: drivers.MetricQueues, Value: sum.queues},
		drivers.Metric{Name: drivers.MetricQueueDepth, Value: sum.depth},
		drivers.Metric{Name: drivers.MetricUnacked, Value: sum.unacked})
	// Each message is in a queue of every subscription.
	metrics = s.grown.AppendMetric(metrics, drivers.MetricPublishRate, "", sum.added/float64(max(1, task.Subscriptions)))
	metrics = s.grown.AppendMetric(metrics, drivers.MetricDeliverRate, "", sum.acked+sum.unacked)
	var inSync bool
	if s.options.HA == replication && answers[len(calls)-2].value(&inSync) == nil {
		short := drivers.Metric{Name: drivers.MetricUnderReplicated}
		if !inSync {
			short.Value = sum.queues
		}
		metrics = append(metrics, short)
	}
	return metrics, nil
}

// listed is a queue in the broker's list of queues. All values are text.
type listed struct {
	Name       string `json:"name"`
	Messages   string `json:"messageCount"` // includes messages delivered and not acknowledged
	Delivering string `json:"deliveringCount"`
	Added      string `json:"messagesAdded"`
	Acked      string `json:"messagesAcked"`
}

// sums are the totals over the task's queues. Counters start when the queues are created.
type sums struct{ queues, depth, unacked, added, acked float64 }

// sumQueues adds up the queues of a list. It returns false if the list is incomplete or cannot be parsed, because a
// partial sum would be wrong.
func sumQueues(a answer, prefix string) (sum sums, known bool) {
	var list string
	var page struct {
		Data  []listed `json:"data"`
		Count int      `json:"count"`
	}
	if a.value(&list) != nil || json.Unmarshal([]byte(list), &page) != nil || page.Count > len(page.Data) {
		return sums{}, false
	}
	for _, q := range page.Data {
		if !strings.HasPrefix(q.Name, prefix) {
			continue
		}
		sum.queues++
		for _, n := range []struct {
			text string
			to   *float64
		}{{q.Messages, &sum.depth}, {q.Delivering, &sum.unacked}, {q.Added, &sum.added}, {q.Acked, &sum.acked}} {
			value, err := strconv.ParseFloat(n.text, 64)
			if err != nil {
				return sums{}, false
			}
			*n.to += value
		}
	}
	return sum, true
}
