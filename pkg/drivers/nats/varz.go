package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// monitor reads the servers' monitoring endpoints, outside the measured path. A nil monitor returns no metrics.
type monitor struct {
	addresses []string // URLs of /varz, including user information
	client    *http.Client
}

func newMonitor(urls []string, client *http.Client) (*monitor, error) {
	nodes, err := kit.Endpoints("nats monitoring url", "http://host:8222", kit.Web, urls...)
	if err != nil || len(nodes) == 0 {
		return nil, err
	}
	m := &monitor{client: client}
	for _, n := range nodes {
		m.addresses = append(m.addresses, n.URL.JoinPath("varz").String())
	}
	return m, nil
}

func (m *monitor) close() {
	if m != nil {
		m.client.CloseIdleConnections()
	}
}

// varz is the part of a server's /varz that is used. Missing fields are nil.
type varz struct {
	Name        string   `json:"server_name"`
	Memory      *float64 `json:"mem"`         // bytes, resident
	CPU         *float64 `json:"cpu"`         // percent of one core, over the last second
	Connections *float64 `json:"connections"` // client connections
	Opened      *float64 `json:"total_connections"`
}

// metrics reads all servers in parallel. The metrics of a server that does not answer are missing; an error reports
// that.
func (m *monitor) metrics(ctx context.Context, p *prober) ([]drivers.Metric, error) {
	if m == nil {
		return nil, nil
	}
	answers, errs := make([]varz, len(m.addresses)), make([]error, len(m.addresses))
	var wg sync.WaitGroup
	for i, address := range m.addresses {
		wg.Go(func() { answers[i], errs[i] = m.ask(ctx, address) })
	}
	wg.Wait()
	var all []drivers.Metric
	seen := map[string]bool{} // two URLs may lead to the same server
	for i, v := range answers {
		if errs[i] != nil || seen[v.Name] {
			continue
		}
		seen[v.Name] = true
		all = append(all, v.metrics(p)...)
	}
	return all, errors.Join(errs...)
}

func (v varz) metrics(p *prober) (all []drivers.Metric) {
	add := func(name string, value *float64, per float64) {
		if value != nil {
			all = append(all, drivers.Metric{Name: name, Node: v.Name, Value: *value / per})
		}
	}
	add(drivers.MetricMemory, v.Memory, 1)
	add(drivers.MetricCPU, v.CPU, 100)
	add(drivers.MetricConnections, v.Connections, 1)
	if v.Opened != nil {
		if rate, known := p.grown.PerSecond("opened "+v.Name, *v.Opened); known {
			all = append(all, drivers.Metric{Name: drivers.MetricConnectionRate, Node: v.Name, Value: rate})
		}
	}
	return all
}

func (m *monitor) ask(ctx context.Context, address string) (v varz, err error) {
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
