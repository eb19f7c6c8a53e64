package drivers

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// measured is a driver with metrics.
type measured struct {
	name    string
	metrics []MetricInfo
}

func (m measured) Info() Info { return Info{Name: m.name, Metrics: m.metrics} }

func (measured) Open(context.Context, json.RawMessage, Env) (Session, error) {
	return nil, ErrUnsupported
}

func TestInvalidMetricsAreRejected(t *testing.T) {
	valid := MetricInfo{Name: "segments.open", Unit: "count", Doc: "open segments"}
	queues := SharedMetrics(MetricQueues)[0]
	edit := func(m MetricInfo, change func(*MetricInfo)) MetricInfo {
		change(&m)
		return m
	}
	for want, metrics := range map[string][]MetricInfo{
		"":                          {valid, queues, {Name: "heat", Unit: "°C", Doc: "d"}, {Name: "io", Unit: "pages/s", Doc: "d"}},
		"documentation has 0 bytes": {edit(valid, func(m *MetricInfo) { m.Doc = "" })},
		`invalid unit ""`:           {edit(valid, func(m *MetricInfo) { m.Unit = "" })},
		`invalid unit "text"`:       {edit(valid, func(m *MetricInfo) { m.Unit = "text" })},
		`unit "per second"`:         {edit(valid, func(m *MetricInfo) { m.Unit = "per second" })},
		"invalid name":              {edit(valid, func(m *MetricInfo) { m.Name = "Segments" })},
		`".open": invalid`:          {edit(valid, func(m *MetricInfo) { m.Name = ".open" })},
		"declared twice":            {valid, valid},
		"shared metric":             {edit(queues, func(m *MetricInfo) { m.Unit = "bytes" })},
	} {
		err := CheckMetrics(metrics)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", metrics, err, want)
		}
		if remove, added := Add(measured{"measured", metrics}); added == nil {
			remove()
		} else if want == "" {
			t.Error(added)
		}
	}
	if err := CheckMetrics(SharedMetrics()); err != nil {
		t.Error(err)
	}
}

// The same name with another unit would add messages to bytes in one column.
func TestMetricsOfDriversAgree(t *testing.T) {
	segments := MetricInfo{Name: "segments", Unit: "count", Doc: "segments"}
	remove, err := Add(measured{"one", []MetricInfo{segments}})
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	other := segments
	other.Doc = "segments of all users"
	if remove, err := Add(measured{"two", []MetricInfo{other}}); err != nil {
		t.Error(err)
	} else {
		remove()
	}
	other.Unit = "bytes"
	if _, err := Add(measured{"two", []MetricInfo{other}}); err == nil || !strings.Contains(err.Error(), "driver one") {
		t.Errorf("added a driver whose metric differs: %v", err)
	}
	if at := metricAt(Metrics(), "segments"); at < len(SharedMetrics()) {
		t.Errorf("segments is number %d of all metrics", at)
	}
}
