package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/cli"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// segmented is loopback with two metrics that no other code knows.
type segmented struct{ drivers.Driver }

func (s segmented) Info() drivers.Info {
	info := s.Driver.Info()
	info.Name = "segmented"
	info.Metrics = append(info.Metrics,
		drivers.MetricInfo{Name: "segments", Unit: "count", Doc: "open segments", Sum: true},
		drivers.MetricInfo{Name: "page_faults", Unit: "pages", Doc: "pages that were read"})
	return info
}

func (s segmented) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	session, err := s.Driver.Open(ctx, options, env)
	return segmentedSession{session}, err
}

type segmentedSession struct{ drivers.Session }

func (segmentedSession) Probe(context.Context) ([]drivers.Metric, error) {
	return []drivers.Metric{{Name: "segments", Node: "a", Value: 3}, {Name: "segments", Node: "b", Value: 4},
		{Name: "page_faults", Node: "a", Value: 11}, {Name: "page_faults", Node: "b", Value: 12}}, nil
}

// TestMetricsOfADriver proves that names and units which only a driver declares can be used in tables, rules and the
// history, and that a record has them without the driver.
func TestMetricsOfADriver(t *testing.T) {
	loopback, err := drivers.Lookup("loopback")
	if err != nil {
		t.Fatal(err)
	}
	remove, err := drivers.Add(segmented{loopback})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	folder := t.TempDir()
	matrix, runs := filepath.Join(folder, "m.cue"), filepath.Join(folder, "runs")
	const text = `package matrix
name: "segmented"
brokers: b: {driver: "segmented", options: name: "segmented"}
cell: {publishers: rate: 100, warmup: "0s", measure: "3s", drain: {idle: "2m", timeout: "2m"}, require: ["broker.segments.max == 7", "broker.page_faults.p50 < 13"]}
tables: [{rows: [], values: ["sent", "broker.segments.mean", "broker.page_faults.max", "broker.queue_depth.p50"]}]
`
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(matrix, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(text, "broker.segments.mean", "broker.segment.mean", 1))
	if code, output := ctl(t, "plan", matrix); code != cli.ExitBadMatrix ||
		!strings.Contains(output, `did you mean "broker.segments.mean"?`) {
		t.Errorf("code %d: %s", code, output)
	}
	write(text)
	if code, output := ctl(t, "run", "--runs", runs, matrix); code != 0 {
		t.Fatalf("code %d: %s", code, output)
	}
	if code, output := ctl(t, "explain", "broker.page_faults.max"); code != 0 || !strings.Contains(output, "unit pages") {
		t.Errorf("code %d: %s", code, output)
	}
	if code, output := ctl(t, "drivers", "segmented"); code != 0 || !strings.Contains(output, "open segments") {
		t.Errorf("code %d: %s", code, output)
	}
	remove()
	for _, x := range []struct {
		args []string
		want []string
	}{
		{[]string{"show", "latest"}, []string{"Broker segments mean", "Broker page faults max", "12 pages"}},
		{[]string{"show", "latest", "-o", "csv"}, []string{"broker.segments.mean,7,count", "broker.page_faults.max,12,pages"}},
		{[]string{"show", "latest", "-o", "gobench"}, []string{"7 broker-segments-mean"}},
		{[]string{"history", "--metric", "broker.page_faults.max"}, []string{"Broker page faults max", "12 pages"}},
	} {
		code, output := ctl(t, append(x.args, "--runs", runs)...)
		for _, want := range x.want {
			if code != 0 || !strings.Contains(output, want) {
				t.Errorf("%v: code %d, want %q in\n%s", x.args, code, want, output)
			}
		}
	}
}
