package rabbitmq

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// metricsLimit is the maximum size of one response, in bytes.
const metricsLimit = 64 << 20

// scrape is the result of reading one node: the sum of the series of each metric, and the node's name.
type scrape struct {
	node   string
	values map[string]float64
}

// queueMessages are the message counts of one queue. Missing counts are nil.
type queueMessages struct {
	All     *float64 `json:"messages"`
	Unacked *float64 `json:"messages_unacknowledged"`
}

// scraped are the metrics that scrape reads, with the names under which ofScrape adds them.
var scraped = map[string]struct {
	name string // "": see ofCPU and ofMemory
	rate bool   // the growth per second is added
}{
	"erlang_vm_process_count":                   {name: metricErlangProcesses},
	"erlang_vm_processes":                       {name: metricErlangProcesses}, // its name since 4.3
	"erlang_vm_statistics_run_queues_length":    {name: drivers.MetricRunQueue},
	"erlang_vm_statistics_runtime_milliseconds": {},
	"rabbitmq_process_resident_memory_bytes":    {},
	"rabbitmq_process_open_fds":                 {name: drivers.MetricFileDescriptors},
	"rabbitmq_disk_space_available_bytes":       {name: drivers.MetricDiskFree},
	"rabbitmq_connections":                      {name: drivers.MetricConnections},
	"rabbitmq_channels":                         {name: drivers.MetricChannels},
	"rabbitmq_consumers":                        {name: drivers.MetricConsumers},
	"rabbitmq_connections_opened_total":         {name: drivers.MetricConnectionRate, rate: true},
	"rabbitmq_global_messages_received_total":   {name: drivers.MetricPublishRate, rate: true},
	"rabbitmq_global_messages_delivered_total":  {name: drivers.MetricDeliverRate, rate: true},
}

const (
	identity       = "rabbitmq_identity_info"
	queueAll       = "rabbitmq_detailed_queue_messages"
	queueUnacked   = "rabbitmq_detailed_queue_messages_unacked"
	detailedQueues = "/metrics/detailed?family=queue_coarse_metrics&vhost="
)

// scrape reads the metrics of one node.
func (s *session) scrape(ctx context.Context, n kit.Endpoint) (scrape, error) {
	found := scrape{values: map[string]float64{}}
	err := s.readPlugin(ctx, n, "/metrics", func(name string, labels map[string]string, value float64) {
		if name == identity {
			found.node = labels["rabbitmq_node"]
		} else if _, is := scraped[name]; is {
			found.values[name] += value
		}
	})
	if err == nil && found.node == "" {
		err = fmt.Errorf("read the Prometheus plugin at %s: the response names no node", n.Base())
	}
	if err != nil {
		return scrape{}, err
	}
	return found, nil
}

// scrapeQueues reads the message counts of the queues that one node reports and whose names begin with prefix.
func (s *session) scrapeQueues(ctx context.Context, n kit.Endpoint, prefix string) (map[string]queueMessages, error) {
	queues, vhost := map[string]queueMessages{}, s.endpoints[0].vhost
	err := s.readPlugin(ctx, n, detailedQueues+url.QueryEscape(vhost),
		func(name string, labels map[string]string, value float64) {
			queue := labels["queue"]
			if labels["vhost"] != vhost || !strings.HasPrefix(queue, prefix) {
				return
			}
			q := queues[queue]
			switch name {
			case queueAll:
				q.All = &value
			case queueUnacked:
				q.Unacked = &value
			}
			queues[queue] = q
		})
	return queues, err
}

// readPlugin calls each for every sample of a response.
func (s *session) readPlugin(ctx context.Context, n kit.Endpoint, path string,
	each func(name string, labels map[string]string, value float64)) error {
	base := strings.TrimSuffix(n.Base(), "/metrics")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return fmt.Errorf("make request to the Prometheus plugin: %w", err)
	}
	if n.User != "" {
		request.SetBasicAuth(n.User, n.Password)
	}
	response, err := s.http.Do(request)
	if err != nil {
		return fmt.Errorf("query the Prometheus plugin: %w", kit.Explain(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("query the Prometheus plugin at %s%s: %s; is rabbitmq_prometheus enabled there?", base, path,
			response.Status)
	}
	lines := bufio.NewScanner(io.LimitReader(response.Body, metricsLimit))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if name, labels, value, ok := sample(lines.Text()); ok {
			each(name, labels, value)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the Prometheus plugin's answer from %s: %w", base, err)
	}
	return nil
}

// sample parses one line of Prometheus' text format: name{label="value",…} value.
func sample(line string) (name string, labels map[string]string, value float64, ok bool) {
	end := strings.IndexAny(line, "{ ")
	if end <= 0 || line[0] == '#' {
		return "", nil, 0, false
	}
	name, rest := line[:end], line[end:]
	if rest[0] == '{' {
		if labels, rest, ok = readLabels(rest[1:]); !ok {
			return "", nil, 0, false
		}
	}
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a timestamp may follow
	value, err := strconv.ParseFloat(number, 64)
	return name, labels, value, err == nil
}

// readLabels parses labels up to the closing brace, and returns the text after it.
func readLabels(text string) (labels map[string]string, rest string, ok bool) {
	labels = map[string]string{}
	for {
		text = strings.TrimLeft(text, ", ")
		if rest, done := strings.CutPrefix(text, "}"); done {
			return labels, rest, true
		}
		name, quoted, _ := strings.Cut(text, "=")
		prefix, err := strconv.QuotedPrefix(quoted) // fails without "="
		if err != nil {
			return nil, "", false
		}
		value, err := strconv.Unquote(prefix) // Prometheus uses the escapes \\, \" and \n, which mean the same in Go
		if err != nil {
			return nil, "", false
		}
		labels[name], text = value, quoted[len(prefix):]
	}
}
