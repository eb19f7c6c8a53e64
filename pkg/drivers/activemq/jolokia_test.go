package activemq

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

func TestServers(t *testing.T) {
	all, err := (&options{Jolokia: []string{"http://admin:hidden@host:8161/api/jolokia", "https://other/jolokia/"}}).servers()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ base, origin, user, password string }{
		{"http://host:8161/api/jolokia", "http://host:8161", "admin", "hidden"},
		{"https://other/jolokia", "https://other", "", ""},
	} {
		if s := all[i]; s.Base() != want.base || origin(s) != want.origin || s.User != want.user || s.Password != want.password {
			t.Errorf("server %d: %s, %s, %+v; want %+v", i, s.Base(), origin(s), s, want)
		}
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestChangesGoToTheServerThatWasAsked: each server has the broker of its host's name. Requests of other goroutines
// make now one and now the other the server that answered last.
func TestChangesGoToTheServerThatWasAsked(t *testing.T) {
	servers, err := (&options{Jolokia: []string{"http://a/jolokia", "http://b/jolokia"}}).servers()
	if err != nil {
		t.Fatal(err)
	}
	j := &jolokia{servers: servers, client: new(http.Client)}
	turn := func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.at = 1 - j.at
	}
	j.client.Transport = transport(func(r *http.Request) (*http.Response, error) {
		var asked []question
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			return nil, err
		}
		if name := ",brokerName=" + r.URL.Host; asked[0].Type == "exec" && !strings.HasSuffix(asked[0].MBean, name) {
			t.Errorf("%s gets a change of %s", r.URL.Host, asked[0].MBean)
		}
		text := fmt.Sprintf(`[{"status": 200, "value": {"bean": {"BrokerName": %q}}}]`, r.URL.Host)
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
	})
	stop := make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				turn()
			}
		}
	})
	for range 1000 {
		if err := j.execute(t.Context(), removeQueue, []string{"q"}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	other.Wait()
}

// TestCleanupRejectsOtherKinds: only queues are removed.
func TestCleanupRejectsOtherKinds(t *testing.T) {
	s := &managedSession{jolokia: &jolokia{}}
	err := s.Cleanup(t.Context(), []drivers.Leftover{{Kind: "topic", Name: "x"}})
	if !errors.Is(err, drivers.ErrUnsupported) || !strings.Contains(err.Error(), `topic "x"`) {
		t.Errorf("cleanup of a topic: %v", err)
	}
}

func TestDestination(t *testing.T) {
	for bean, want := range map[string]string{
		"org.apache.activemq:brokerName=b,destinationName=x.q0.s1,destinationType=Queue,type=Broker": "x.q0.s1",
		"org.apache.activemq:brokerName=b,type=Broker":                                               "",
		"nonsense": "",
	} {
		if got := destination(bean); got != want {
			t.Errorf("%s is %q, want %q", bean, got, want)
		}
	}
}

// A message in the queues of several subscriptions was published once.
func TestPublishRateOfSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &managedSession{}
		var rate float64
		for _, enqueued := range []int{0, 15} {
			text := fmt.Sprintf(`{"q0.s0": {"EnqueueCount": %d}, "q0.s1": {"EnqueueCount": %[1]d}, "q0.s2": {"EnqueueCount": %[1]d}}`,
				enqueued)
			for _, m := range s.queueMetrics(reply{Status: http.StatusOK, Value: json.RawMessage(text)}, "b", 3) {
				if m.Name == drivers.MetricPublishRate {
					rate = m.Value
				}
			}
			time.Sleep(time.Second)
		}
		if rate != 15 {
			t.Errorf("15 messages per second with 3 subscriptions are a rate of %v", rate)
		}
	})
}

// A value that Jolokia's policy forbids is missing.
func TestProbeOfRefusedBeansIsMissing(t *testing.T) {
	refused := reply{Status: http.StatusForbidden, Error: "not allowed"}
	s := &managedSession{}
	for range 2 { // rates need a second probe
		for name, metrics := range map[string][]drivers.Metric{
			"memory": memoryMetrics(refused), "process": s.processMetrics(refused, "b"), "store": storeMetrics(refused),
			"queues": s.queueMetrics(refused, "b", 1),
		} {
			if len(metrics) > 0 {
				t.Errorf("%s: %v", name, metrics)
			}
		}
	}
}
