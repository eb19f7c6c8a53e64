package matrix

import (
	"slices"
	"testing"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// The metrics of plan and the constants of package drivers are the same: a metric in only one list would be queried
// without result, or never shown.
func TestMetricsArePlansAndDrivers(t *testing.T) {
	var names []drivers.MetricName
	for _, f := range plan.Metrics() {
		names = append(names, drivers.MetricName(f.Name))
		if f.Title == "" || f.Unit == "" || f.Doc == "" {
			t.Errorf("metric %s has no title, unit or doc", f.Name)
		}
	}
	if !slices.Equal(names, drivers.Metrics()) {
		t.Errorf("plan has the metrics %v, package drivers %v", names, drivers.Metrics())
	}
	for _, f := range drivers.Metrics() {
		for _, s := range plan.MetricStatistics() {
			if _, known := plan.ValueNamed(plan.MetricValue(string(f), s)); !known {
				t.Errorf("no table can show %s", plan.MetricValue(string(f), s))
			}
		}
	}
}
