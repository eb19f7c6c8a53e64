package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// An axis that sets the simulated latency shows the achieved latency beside each value: the median of its cells. Other
// axes do not.
func TestAchievedLatencyIsBesideItsAxis(t *testing.T) {
	run := plan.Run{ID: "r", Name: "latency", Repeat: 1, Axes: []string{"latency", "threads"}}
	var outcomes []plan.Outcome
	for i, latency := range []time.Duration{0, 5 * time.Millisecond} {
		for threads := range 3 {
			w := plan.Default()
			w.Network.Latency = plan.Duration(latency)
			text, _ := json.Marshal(latency.String())
			id := fmt.Sprintf("c%d%d", i, threads)
			run.Cells = append(run.Cells, plan.Cell{ID: id, Index: 3*i + threads, Workload: w,
				Coordinates: []plan.Coordinate{{Axis: "latency", Value: text},
					{Axis: "threads", Value: json.RawMessage(fmt.Sprint(threads))}}})
			outcomes = append(outcomes, plan.Outcome{Run: "r", Task: id + "-r1", Cell: id, Repetition: 1,
				Verdict: plan.Valid, Values: map[string]plan.Value{
					"publish.rate": {Number: 1000}, "network.latency.p50": {Number: latency.Seconds() +
						1e-4*float64(threads)}}})
		}
	}
	for _, x := range []struct {
		rows, columns []string
		want          string
	}{
		{[]string{"threads"}, []string{"latency"}, "latency=5ms (5.10 ms)"},
		{[]string{"latency"}, []string{"threads"}, "5ms (5.10 ms)"},
	} {
		run.Tables = []plan.Table{{Rows: x.rows, Columns: x.columns, Values: []string{"publish.rate"}}}
		var text bytes.Buffer
		if err := writeText(&text, Build(run, outcomes), 120); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text.String(), "("); !strings.Contains(text.String(), x.want) || n != 2 {
			t.Errorf("rows %v: %d values are annotated, want 2, one of them %q:\n%s", x.rows, n, x.want, &text)
		}
	}
}
