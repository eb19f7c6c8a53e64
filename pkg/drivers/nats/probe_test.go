package nats

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// watched returns a session with a server in a separate process, and a function to kill it. monitoring returns the
// option from the real address.
func watched(t *testing.T, monitoring func(real string) string) (*session, func()) {
	t.Helper()
	address, watch := labtest.FreeAddress(t), labtest.FreeAddress(t)
	kill := startProcess(t, address, watch, t.TempDir())
	t.Cleanup(kill)
	text, err := json.Marshal(map[string]any{"url": "nats://user:p%40ss@" + address,
		"monitoring": []string{monitoring("http://" + watch)}})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, text, nil), kill
}

func same(url string) string { return url }

// said returns the metrics of one probe by name. Nodes are summed.
func said(metrics []drivers.Metric) map[string]float64 {
	all := map[string]float64{}
	for _, f := range metrics {
		all[f.Name] += f.Value
	}
	return all
}

// probeUntil probes until the result is as required.
func probeUntil(t *testing.T, s *session, what string,
	wanted func(map[string]float64) bool) map[string]float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), labtest.Wait)
	defer cancel()
	for {
		metrics, err := s.Probe(ctx)
		all := said(metrics)
		switch {
		case err == nil && wanted(all):
			return all
		case ctx.Err() != nil:
			t.Fatalf("no %s: %v, %v", what, all, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestProbeOfAServer(t *testing.T) {
	s, _ := watched(t, same)
	first, err := s.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range first {
		if monitored := f.Name != drivers.MetricStored; monitored != (f.Node == "alone") {
			t.Errorf("%s is of node %q", f.Name, f.Node)
		}
	}
	all := said(first)
	if memory := all[drivers.MetricMemory]; memory < 1<<20 || memory > 4<<30 {
		t.Errorf("the server's memory is %v bytes", memory)
	}
	if _, told := all[drivers.MetricConnectionRate]; told {
		t.Error("a rate comes with the first answer")
	}
	before := all[drivers.MetricConnections]
	if before < 1 {
		t.Errorf("there are %v connections, one of which is this session's", before)
	}
	top := plain("watched")
	if err := s.Setup(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	p, _ := connect(t, s, drivers.PublisherSpec{Topology: top, Mode: drivers.ConfirmEach})
	probeUntil(t, s, "connection more",
		func(now map[string]float64) bool { return now[drivers.MetricConnections] > before })
	busy := 0.0
	probeUntil(t, s, "processor time", func(now map[string]float64) bool {
		for range 300 {
			if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		busy = max(busy, now[drivers.MetricPublishRate])
		return now[drivers.MetricCPU] > 0 && busy > 0 && now[drivers.MetricQueueDepth] > 0 && now[drivers.MetricLag] > 0
	})
	if cpu := said(mustProbe(t, s))[drivers.MetricCPU]; cpu > 64 {
		t.Errorf("the server uses %v cores", cpu)
	}
}

func mustProbe(t *testing.T, s *session) []drivers.Metric {
	t.Helper()
	metrics, err := s.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return metrics
}

// If a server's monitoring does not respond or is something else, its memory and connections are missing, not 0.
// JetStream's metrics are kept.
func TestProbeWithoutMonitoringIsMissing(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, c := range map[string]struct{ url, why string }{
		"nobody listens": {"http://user:s3cret@" + labtest.FreeAddress(t), "refused"},
		"no answer":      {"http://user:s3cret@" + silent.Addr().String(), "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := watched(t, func(string) string { return c.url })
			began := time.Now()
			metrics, err := s.Probe(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.why) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v, want one that says %q", err, c.why)
			}
			if took := time.Since(began); labtest.IsLong() && took > askWithin+20*time.Second {
				t.Errorf("it took %v", took)
			}
			if len(metrics) != 1 || metrics[0].Name != drivers.MetricStored {
				t.Errorf("%v, want what is stored alone", metrics)
			}
		})
	}
	t.Run("another page", func(t *testing.T) {
		s, _ := watched(t, func(real string) string { return real + "/nothing" })
		if metrics, err := s.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "404") ||
			len(metrics) != 1 {
			t.Errorf("%v, %v", metrics, err)
		}
	})
}

// There are no metrics of a server that was killed.
func TestProbeOfADeadServerIsMissing(t *testing.T) {
	s, kill := watched(t, same)
	mustProbe(t, s)
	kill()
	if metrics, err := s.Probe(t.Context()); err == nil || len(metrics) > 0 {
		t.Errorf("%v, %v", metrics, err)
	}
}

func TestMonitoringURL(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:8222", "nats://127.0.0.1:8222", "http://"} {
		if _, err := newMonitor([]string{url}, nil); err == nil || !strings.Contains(err.Error(), "monitoring url number 0") {
			t.Errorf("monitoring %q: %v", url, err)
		}
	}
	options := schematest.Fill(t, driver{}, `{"embedded": true, "monitoring": ["http://127.0.0.1:8222"]}`)
	if d := declare(options, drivers.Use{}); len(d.Rejections) != 1 {
		t.Errorf("an embedded server is given monitoring: %v", d.Rejections)
	}
}

// A response without a metric does not give its value.
func TestVarzLacksMetrics(t *testing.T) {
	var v varz
	if err := json.Unmarshal([]byte(`{"server_name": "a", "mem": 5, "cpu": 150}`), &v); err != nil {
		t.Fatal(err)
	}
	all := said(v.metrics(&kit.Rates{}))
	if len(all) != 2 || all[drivers.MetricMemory] != 5 || all[drivers.MetricCPU] != 1.5 {
		t.Errorf("%v, want 5 bytes and one and a half cores", all)
	}
}
