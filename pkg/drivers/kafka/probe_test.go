package kafka

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// If topics do not exist, their metrics are missing.
func TestProbeOfMissingTopicsIsMissing(t *testing.T) {
	r := open(t, at(t, single, `{"partitions": 2}`))
	r.session.task.Store(&r.topology)
	metrics, err := r.session.Probe(r.context())
	if err == nil || !strings.Contains(err.Error(), "0 of 2 partitions") {
		t.Errorf("error %v, want one that tells of the partitions", err)
	}
	for _, f := range metrics {
		switch f.Name {
		case drivers.MetricUnderReplicated, drivers.MetricLag, drivers.MetricPublishRate, drivers.MetricQueues:
			t.Errorf("%s is %v of topics that are not there", f.Name, f.Value)
		}
	}
}

// Rates need a second probe.
func TestProbeBeginsWithoutRates(t *testing.T) {
	r := setUp(t, at(t, single, `{}`))
	for i := range 2 {
		metrics, err := r.session.Probe(r.context())
		if err != nil {
			t.Fatal(err)
		}
		said := false
		for _, f := range metrics {
			if f.Name == drivers.MetricPublishRate {
				said = true
				if f.Value != 0 {
					t.Errorf("the rate is %v and nothing is sent", f.Value)
				}
			}
		}
		if said != (i > 0) {
			t.Errorf("answer %d tells a rate: %t", i+1, said)
		}
	}
}

// Messages that were deleted, by retention or a request, are no lag.
func TestLagExcludesDeletedMessages(t *testing.T) {
	r := setUp(t, at(t, single, `{}`))
	topic := topicName(r.topology, 0)
	const sent, deleted = 10, 7
	for range sent {
		if err := r.session.library.ProduceSync(r.context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := r.session.admin.DeleteRecords(r.context(), kadm.Offsets{topic: {0: {Topic: topic, At: deleted}}})
	if err = errors.Join(err, answer.Error()); err != nil {
		t.Fatal(err)
	}
	metrics, err := r.session.Probe(r.context())
	if err != nil {
		t.Fatal(err)
	}
	lag := slices.IndexFunc(metrics, func(m drivers.Metric) bool { return m.Name == drivers.MetricLag })
	if lag < 0 || metrics[lag].Value != sent-deleted {
		t.Errorf("metrics %v, want a lag of %d", metrics, sent-deleted)
	}
}

// Folders on the same disk count its space once. If a folder cannot be read, or a broker does not report it, the sums
// are unknown.
func TestMetricsOfLogFolders(t *testing.T) {
	dir := func(err error, size, total, usable int64) kadm.DescribedLogDir {
		return kadm.DescribedLogDir{Err: err, TotalBytes: total, UsableBytes: usable,
			Topics: kadm.DescribedLogDirTopics{"t": {0: {Size: size}}}}
	}
	for name, c := range map[string]struct {
		said kadm.DescribedLogDirs
		want map[string]float64
	}{
		"one disk": {kadm.DescribedLogDirs{"a": dir(nil, 5, 100, 60), "b": dir(nil, 7, 100, 60)},
			map[string]float64{"stored": 12, "disk_free": 60}},
		"two disks": {kadm.DescribedLogDirs{"a": dir(nil, 5, 100, 60), "b": dir(nil, 7, 90, 50)},
			map[string]float64{"stored": 12, "disk_free": 110}},
		"not said": {kadm.DescribedLogDirs{"a": dir(nil, 5, -1, -1)}, map[string]float64{"stored": 5}},
		"one offline": {kadm.DescribedLogDirs{"a": dir(nil, 5, 100, 60), "b": dir(kerr.KafkaStorageError, 0, -1, -1)},
			nil},
		"no folders": {kadm.DescribedLogDirs{}, nil},
	} {
		metrics := ofDirs("1", c.said)
		if len(metrics) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, metrics, c.want)
		}
		for _, f := range metrics {
			if f.Node != "1" || f.Value != c.want[f.Name] {
				t.Errorf("%s: %v, want %v", name, f, c.want)
			}
		}
	}
}
