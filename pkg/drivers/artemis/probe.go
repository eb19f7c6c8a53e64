package artemis

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"lockstep/pkg/drivers"
)

// maxQueues bounds the list of the task's queues. Where there are more, the metrics of queues are left out.
const maxQueues = 1000

// broad are metrics that the broker says of itself as a whole.
var broad = map[string]drivers.MetricName{
	"AddressMemoryUsage": drivers.MetricMemoryQueues,
	"ConnectionCount":    drivers.MetricConnections,
	"SessionCount":       drivers.MetricChannels,
	"TotalConsumerCount": drivers.MetricConsumers,
}

// What Probe asks beside.
const (
	opened = "TotalConnectionCount" // since the broker started
	synced = "ReplicaSync"
)

// Probe asks through management, on a connection of its own. The memory is that of the messages which the addresses
// hold: the broker does not say how much its process uses, nor how many bytes of its disk.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	var calls []call
	for name := range broad {
		calls = append(calls, attribute("broker", name))
	}
	calls = append(calls, attribute("broker", opened))
	task := s.task.Load()
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
			metrics = append(metrics, s.rate(drivers.MetricConnectionRate, n)...)
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
	metrics = append(metrics, s.rate(drivers.MetricPublishRate, sum.added)...)
	metrics = append(metrics, s.rate(drivers.MetricDeliverRate, sum.acked+sum.unacked)...)
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

// rate is a metric once a counter is known to have grown.
func (s *session) rate(name drivers.MetricName, counter float64) []drivers.Metric {
	if rate, known := s.grown.PerSecond(string(name), counter); known {
		return []drivers.Metric{{Name: name, Value: rate}}
	}
	return nil
}

// listed is a queue in the broker's list, in which every value is text.
type listed struct {
	Name       string `json:"name"`
	Messages   string `json:"messageCount"` // those delivered and not acknowledged included
	Delivering string `json:"deliveringCount"`
	Added      string `json:"messagesAdded"`
	Acked      string `json:"messagesAcked"`
}

// sums are those of the task's queues; of counters, since the queues were made.
type sums struct{ queues, depth, unacked, added, acked float64 }

// sumQueues adds up the queues of a list. A list that is not whole, or not understood, gives nothing: a part is not the
// whole.
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
