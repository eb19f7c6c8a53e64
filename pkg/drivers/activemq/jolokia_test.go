package activemq

import (
	"net/http"
	"strings"
	"testing"

	"lockstep/pkg/drivers"
)

func TestParseJolokia(t *testing.T) {
	all, err := parseJolokia([]string{"http://admin:hidden@host:8161/api/jolokia", "https://other/jolokia/"})
	want := []server{
		{base: "http://host:8161/api/jolokia/", origin: "http://host:8161", user: "admin", secret: "hidden"},
		{base: "https://other/jolokia/", origin: "https://other"},
	}
	if err != nil || len(all) != 2 || all[0] != want[0] || all[1] != want[1] {
		t.Errorf("%+v, %v; want %+v", all, err, want)
	}
	for _, text := range []string{"ftp://admin:hidden@host", "admin:hidden@host", "http://hid%zz@host"} {
		if _, err := parseJolokia([]string{text}); err == nil || strings.Contains(err.Error(), "hid") {
			t.Errorf("%s: %v", text, err)
		}
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

// A value that Jolokia's policy forbids is missing.
func TestProbeOfRefusedBeansIsMissing(t *testing.T) {
	refused := reply{Status: http.StatusForbidden, Error: "not allowed"}
	s := &managedSession{}
	for range 2 { // rates need a second probe
		for name, metrics := range map[string][]drivers.Metric{
			"memory": memoryMetrics(refused), "process": s.processMetrics(refused, "b"), "store": storeMetrics(refused),
			"queues": s.queueMetrics(refused, "b"),
		} {
			if len(metrics) > 0 {
				t.Errorf("%s: %v", name, metrics)
			}
		}
	}
}
