package nats

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// monitor reads the servers' monitoring endpoints, outside the measured path. Without addresses, it returns no metrics.
type monitor struct {
	addresses []string // URLs of /varz, including user information
	client    *http.Client
}

func newMonitor(urls []string, client *http.Client) (monitor, error) {
	nodes, err := kit.Endpoints("nats monitoring url", "http://host:8222", kit.Web, urls...)
	m := monitor{client: client}
	for _, n := range nodes {
		m.addresses = append(m.addresses, n.URL.JoinPath("varz").String())
	}
	return m, err
}

// varz is the part of a server's /varz that is used. Missing fields are nil.
type varz struct {
	Name        string   `json:"server_name"`
	Memory      *float64 `json:"mem"`         // bytes, resident
	CPU         *float64 `json:"cpu"`         // percent of one core, over the last second
	Connections *float64 `json:"connections"` // client connections
	Opened      *float64 `json:"total_connections"`
}

// metrics reads the servers, eight at a time. The metrics of a server that does not answer are missing; an error
// reports that.
func (m monitor) metrics(ctx context.Context, grown *kit.Rates) ([]drivers.Metric, error) {
	answers := make([]*varz, len(m.addresses))
	err := kit.Each(len(answers), func(i int) error {
		v, err := m.ask(ctx, m.addresses[i])
		if err == nil {
			answers[i] = &v
		}
		return err
	})
	var all []drivers.Metric
	seen := map[string]bool{} // two URLs may lead to the same server
	for _, v := range answers {
		if v != nil && !seen[v.Name] {
			seen[v.Name] = true
			all = append(all, v.metrics(grown)...)
		}
	}
	return all, err
}

func (v varz) metrics(grown *kit.Rates) (all []drivers.Metric) {
	add := func(name string, value *float64, per float64) {
		if value != nil {
			all = append(all, drivers.Metric{Name: name, Node: v.Name, Value: *value / per})
		}
	}
	add(drivers.MetricMemory, v.Memory, 1)
	add(drivers.MetricCPU, v.CPU, 100)
	add(drivers.MetricConnections, v.Connections, 1)
	if v.Opened != nil {
		if rate, known := grown.PerSecond("opened "+v.Name, *v.Opened); known {
			all = append(all, drivers.Metric{Name: drivers.MetricConnectionRate, Node: v.Name, Value: rate})
		}
	}
	return all
}

func (m monitor) ask(ctx context.Context, address string) (v varz, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return v, fmt.Errorf("make request to the monitoring of NATS: %w", err)
	}
	shown := strings.TrimPrefix(request.URL.Redacted(), request.URL.Scheme+"://")
	response, err := m.client.Do(request)
	if err != nil {
		return v, fmt.Errorf("query the monitoring of NATS: %w", kit.Explain(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return v, fmt.Errorf("query the monitoring of NATS at %s: %s; monitoring has to lead to the server's http port",
			shown, response.Status)
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, varzLimit)).Decode(&v); err != nil {
		return v, fmt.Errorf("read the answer of the monitoring of NATS at %s: %w", shown, err)
	}
	return v, nil
}

// varzLimit is the maximum size of an answer, in bytes.
const varzLimit = 4 << 20
