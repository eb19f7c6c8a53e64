package eventstore

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/test/eventstored/server"
)

// Statistics of every node are reported, also in a cell without groups. Those of the stand-in are of its own process.
func TestProbeTellsStatisticsOfTheStandIn(t *testing.T) {
	_, address := inProcess(t, server.Options{})
	r := newRig(t, reached(t, address, `{}`), func(t *drivers.Topology) { t.Consumers = 0 })
	for range 3 { // streams of responses must not accumulate
		metrics, err := r.session.Probe(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		all := map[drivers.MetricName]float64{}
		for _, f := range metrics {
			if f.Node != address {
				t.Errorf("%s is of node %q, want %s", f.Name, f.Node, address)
			}
			all[f.Name] = f.Value
		}
		if memory, free := all[drivers.MetricMemory], all[drivers.MetricDiskFree]; len(all) != 3 || memory < 1<<20 ||
			memory > 1<<36 || free < 1<<20 {
			t.Errorf("metrics %v, want memory, disk_free and run_queue", all)
		}
	}
}

// A server without statistics has no value for memory, not 0. Without groups, too, nothing is available.
func TestProbeWithoutStatisticsIsMissing(t *testing.T) {
	_, address := inProcess(t, server.Options{NoStats: true})
	bare := newRig(t, reached(t, address, `{}`), func(t *drivers.Topology) { t.Consumers = 0 })
	if metrics, err := bare.session.Probe(bare.ctx); !errors.Is(err, drivers.ErrUnsupported) || len(metrics) > 0 {
		t.Errorf("%v, %v", metrics, err)
	}
	r := newRig(t, reached(t, address, `{}`), nil)
	metrics, err := r.session.Probe(r.ctx)
	if err != nil || len(metrics) == 0 {
		t.Fatalf("%v, %v", metrics, err)
	}
	for _, f := range metrics {
		if f.Name == drivers.MetricMemory || f.Name == drivers.MetricDiskFree || f.Name == drivers.MetricRunQueue {
			t.Errorf("%s is %v", f.Name, f.Value)
		}
	}
}

// There are no metrics of a server that was killed.
func TestProbeOfADeadStandInIsMissing(t *testing.T) {
	s, address := inProcess(t, server.Options{})
	r := newRig(t, reached(t, address, `{}`), nil)
	s.Stop()
	ctx, cancel := context.WithTimeout(r.ctx, 500*time.Millisecond)
	defer cancel()
	if metrics, err := r.session.Probe(ctx); err == nil || len(metrics) > 0 {
		t.Errorf("%v, %v", metrics, err)
	}
}

// Statistics are parsed as in EventStoreDB's documentation. A real server reports -1 for unknown values.
func TestStatisticsAsDocumented(t *testing.T) {
	named := func(stats map[string]string) map[drivers.MetricName]float64 {
		all := map[drivers.MetricName]float64{}
		for _, f := range nodeMetrics("n", stats) {
			all[f.Name] = f.Value
		}
		return all
	}
	got := named(map[string]string{
		"proc-mem": "118648832", "proc-cpu": "2.44386363", "sys-drive-/data-availableBytes": "545628151808",
		"sys-drive-/data-usage":           "72%",
		"es-queue-Index Committer-length": "2", "es-queue-MainQueue-length": "3",
		"es-queue-MainQueue-currentIdleTime": "",
	})
	want := map[drivers.MetricName]float64{drivers.MetricMemory: 118648832, drivers.MetricDiskFree: 545628151808,
		drivers.MetricRunQueue: 5}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := named(map[string]string{"proc-mem": "-1", "sys-drive-c-availableBytes": "?",
		"es-queue-MainQueue-length": "-1"}); len(got) > 0 {
		t.Errorf("unknown values give %v", got)
	}
}

func TestParseStats(t *testing.T) {
	got, err := parseStats([]byte("\x0a\x07\x0a\x01a\x12\x02-1\x0a\x03\x0a\x01b"))
	if want := map[string]string{"a": "-1", "b": ""}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"\x0a", "\x0a\x05\x0a", "\x08\x01", "\x0a\x02\x1a\x00", "\x12\x00",
		"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if got, err := parseStats([]byte(bad)); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}
