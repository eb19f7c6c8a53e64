package artemis

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"lockstep/pkg/drivers"
)

// mostQueues bounds the list of the task's queues. Where there are more, the figures of queues are left out.
const mostQueues = 1000

// broad are figures that the broker says of itself as a whole.
var broad = map[string]drivers.FigureName{
	"AddressMemoryUsage": drivers.FigureMemoryQueues,
	"ConnectionCount":    drivers.FigureConnections,
	"SessionCount":       drivers.FigureChannels,
	"TotalConsumerCount": drivers.FigureConsumers,
}

// Probe asks through management, on a connection of its own. The memory is that of the messages which the addresses hold: the broker does
// not say how much its process uses.
func (s *session) Probe(ctx context.Context) ([]drivers.Figure, error) {
	var calls []call
	for name := range broad {
		calls = append(calls, attribute("broker", name))
	}
	task := s.task.Load()
	if task != nil {
		filter := text(map[string]string{"field": "name", "operation": "CONTAINS", "value": task.Name + "."})
		calls = append(calls, operation("broker", "listQueues", filter, 1, mostQueues))
	}
	answers, err := s.manage(ctx, calls...)
	if err != nil {
		return nil, fmt.Errorf("probe Artemis: %w", err)
	}
	var figures []drivers.Figure
	for i, c := range calls {
		var n float64
		if name, ok := broad[c.attribute]; ok && answers[i].value(&n) == nil {
			figures = append(figures, drivers.Figure{Name: name, Value: n})
		}
	}
	if task != nil {
		figures = append(figures, queueFigures(answers[len(calls)-1], task.Name+".")...)
	}
	return figures, nil
}

// listed is a queue in the broker's list, in which every value is text.
type listed struct {
	Name       string `json:"name"`
	Messages   string `json:"messageCount"` // those delivered and not acknowledged included
	Delivering string `json:"deliveringCount"`
}

func queueFigures(a answer, prefix string) []drivers.Figure {
	var list string
	var page struct {
		Data  []listed `json:"data"`
		Count int      `json:"count"`
	}
	if a.value(&list) != nil || json.Unmarshal([]byte(list), &page) != nil || page.Count > len(page.Data) {
		return nil
	}
	queues, depth, unacked := 0.0, 0.0, 0.0
	for _, q := range page.Data {
		if !strings.HasPrefix(q.Name, prefix) {
			continue
		}
		messages, err := strconv.ParseFloat(q.Messages, 64)
		delivering, err2 := strconv.ParseFloat(q.Delivering, 64)
		if err != nil || err2 != nil {
			return nil
		}
		queues, depth, unacked = queues+1, depth+messages, unacked+delivering
	}
	return []drivers.Figure{
		{Name: drivers.FigureQueues, Value: queues},
		{Name: drivers.FigureQueueDepth, Value: depth},
		{Name: drivers.FigureUnacked, Value: unacked},
	}
}
