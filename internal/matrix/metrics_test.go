package matrix

import (
	"strings"
	"testing"
)

// A run has the metrics that only the drivers of its brokers declare, and its tables and rules can name them.
func TestMetricsOfDrivers(t *testing.T) {
	const text = `name: "x"
brokers: {b: driver: "fake", c: driver: "simple"}
cell: {broker: "b", require: "broker.segments.max < 5"}
tables: [{rows: [], values: ["broker.segments.mean", "broker.queues.mean"]}]
`
	load := func(text string) (*Matrix, error) { return Load("m.cue", []byte(text), Narrow{}) }
	m, err := load(text)
	if err != nil {
		t.Fatal(err)
	}
	run, err := m.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Metrics) != 1 || run.Metrics[0] != segments || run.Tasks()[0].Metrics[0] != segments {
		t.Errorf("the run has %+v, and its tasks %+v", run.Metrics, run.Tasks()[0].Metrics)
	}
	_, err = load(strings.Replace(text, "fake", "simple", 1))
	for _, want := range []string{`tables[0].values: unknown value "broker.segments.mean"`,
		`unknown value or flag "broker.segments.max"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without the driver: %v, want %s", err, want)
		}
	}
}
