package activemq

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

func open(t *testing.T, options json.RawMessage) drivers.Session {
	t.Helper()
	return labtest.Open(t, driver{}, options, labtest.Env(nil))
}

// connect makes a connection. It is closed at the end of the test.
func connect(t *testing.T, s drivers.Session, role drivers.Role, of drivers.Topology) drivers.Conn {
	t.Helper()
	c, err := s.Connect(labtest.Context(t), drivers.ConnSpec{Role: role, Topology: of, Node: drivers.AnyNode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func topology(queues, subscriptions int) drivers.Topology {
	return labtest.Topology(func(t *drivers.Topology) {
		t.Queues, t.Subscriptions, t.Persistent = queues, subscriptions,
			true
	})
}

// fill leaves n messages in queue 0 of every subscription.
func fill(t *testing.T, s drivers.Session, of drivers.Topology, n int) {
	t.Helper()
	p, err := connect(t, s, drivers.PublisherRole, of).Publisher(labtest.Context(t),
		drivers.PublisherSpec{Topology: of, Mode: drivers.FireAndForget})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := p.Publish(labtest.Context(t), drivers.Message{Body: []byte("left")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// await probes until all metrics of want have their values, and returns the last result. The test fails if they never
// do.
func await(t *testing.T, s drivers.Session, want map[string]float64) map[string]float64 {
	t.Helper()
	seen := map[string]float64{}
	for end := time.Now().Add(labtest.Wait); ; time.Sleep(20 * time.Millisecond) {
		said, err := s.(drivers.Prober).Probe(labtest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		clear(seen)
		for _, f := range said {
			seen[f.Name] = f.Value
		}
		missing := false
		for name, value := range want {
			got, ok := seen[name]
			missing = missing || !ok || got != value
		}
		if !missing {
			return seen
		}
		if time.Now().After(end) {
			t.Fatalf("the broker says %v, want %v", seen, want)
		}
	}
}

func managed(t *testing.T) json.RawMessage {
	return single(t, fmt.Sprintf(`{"jolokia": [%q]}`, lab.Variable(t, "LOCKSTEP_ACTIVEMQ_JOLOKIA")))
}

// Without Jolokia, a teardown empties queues with any number of messages, as the broker's metrics show.
func TestTeardownEmptiesQueues(t *testing.T) {
	plain, witness := open(t, single(t, `{}`)), open(t, managed(t))
	of := topology(2, 2)
	for _, s := range []drivers.Session{plain, witness} {
		if err := s.Setup(labtest.Context(t), of); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, plain, of, 3000)
	await(t, witness, map[string]float64{drivers.MetricQueues: 4, drivers.MetricQueueDepth: 6000})
	start := time.Now()
	if err := plain.Teardown(labtest.Context(t), of); err != nil {
		t.Fatal(err)
	}
	t.Logf("6000 messages in 2 of 4 queues are gone after %v", time.Since(start).Round(time.Millisecond))
	await(t, witness, map[string]float64{drivers.MetricQueues: 4, drivers.MetricQueueDepth: 0})

	if err := witness.Teardown(labtest.Context(t), of); err != nil {
		t.Fatal(err)
	}
	left, err := witness.(drivers.Cleaner).Leftovers(labtest.Context(t), of.Name)
	if err != nil || len(left) > 0 {
		t.Errorf("Jolokia leaves %v, %v", left, err)
	}
}

// Metrics of queues are those of this task's queues, exact to the message. Others are of the broker's process.
func TestProbeCounts(t *testing.T) {
	s := open(t, managed(t))
	of := topology(1, 1)
	if err := s.Setup(labtest.Context(t), of); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Teardown(labtest.Context(t), of); err != nil {
			t.Error(err)
		}
	}()
	first := await(t, s, nil)
	for _, rate := range []string{drivers.MetricPublishRate, drivers.MetricDeliverRate,
		drivers.MetricConnectionRate, drivers.MetricCPU} {
		if v, said := first[rate]; said {
			t.Errorf("%s is %v in the first answer", rate, v)
		}
	}
	fill(t, s, of, 25)
	gate, received := make(chan struct{}), atomic.Int64{}
	var c drivers.Consumer
	c, err := connect(t, s, drivers.ConsumerRole, of).Consumer(labtest.Context(t), drivers.ConsumerSpec{
		Topology: of, Prefetch: 10, Batch: 10, Ack: drivers.AckEach,
	}, func(batch []drivers.Delivery) {
		<-gate
		received.Add(int64(len(batch)))
		c.Ack(len(batch))
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := await(t, s, map[string]float64{drivers.MetricQueues: 1, drivers.MetricQueueDepth: 25,
		drivers.MetricUnacked: 10})
	for _, name := range []string{
		drivers.MetricConnections, drivers.MetricConsumers, drivers.MetricMemory, drivers.MetricFileDescriptors,
		drivers.MetricStored,
		drivers.MetricMemoryQueues,
	} {
		if seen[name] <= 0 {
			t.Errorf("%s is %v of a broker at work", name, seen[name])
		}
	}
	close(gate)
	seen = await(t, s, map[string]float64{drivers.MetricQueueDepth: 0, drivers.MetricUnacked: 0})
	if cpu, ok := seen[drivers.MetricCPU]; !ok || cpu < 0 || cpu > 64 {
		t.Errorf("the broker uses %v cores (said: %v)", cpu, ok)
	}
	rates := map[string]float64{}
	for end := time.Now().Add(labtest.Wait); len(rates) < 3; {
		if time.Now().After(end) {
			t.Fatalf("of the rates only %v are more than zero while messages and connections come", rates)
		}
		fill(t, s, of, 5)
		for name, value := range await(t, s, nil) {
			if value > 0 && (name == drivers.MetricPublishRate || name == drivers.MetricDeliverRate ||
				name == drivers.MetricConnectionRate) {
				rates[name] = value
			}
		}
	}
	if err := c.Close(); err != nil || received.Load() < 25 {
		t.Errorf("%d of 25 messages received; %v", received.Load(), err)
	}
}

// Jolokia runs in both processes of a pair. The active broker is probed, at any position in the list.
func TestJolokiaOfThePassiveBroker(t *testing.T) {
	consoles := strings.Split(lab.Variable(t, "LOCKSTEP_ACTIVEMQ_PAIR_JOLOKIAS"), ",")
	for _, order := range [][]string{{consoles[0], consoles[1]}, {consoles[1], consoles[0]}} {
		servers, err := (&options{Jolokia: order}).servers()
		if err != nil {
			t.Fatal(err)
		}
		j := &jolokia{servers: servers, client: new(http.Client)}
		defer j.close()
		broker, _, err := j.ask(labtest.Context(t))
		if err != nil || broker.Slave || broker.Name == "" {
			t.Errorf("asked %v: %+v, %v", order, broker, err)
		}
	}
	passive := 0
	for _, console := range consoles {
		servers, err := (&options{Jolokia: []string{console}}).servers()
		if err != nil {
			t.Fatal(err)
		}
		j := &jolokia{servers: servers, client: new(http.Client)}
		defer j.close()
		if _, _, err := j.ask(labtest.Context(t)); err != nil {
			passive++
			if !strings.Contains(err.Error(), strings.TrimSuffix(console, "/jolokia")) {
				t.Errorf("the error does not say where: %v", err)
			}
		}
	}
	if passive != 1 {
		t.Errorf("%d of the pair are passive, want 1", passive)
	}
}
