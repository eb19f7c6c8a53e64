package matrix

import (
	"slices"
	"testing"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// Tables know the figures by plan's list and drivers by their constants: one that is in one of them alone would be asked for in vain, or
// never shown.
func TestFiguresArePlansAndDrivers(t *testing.T) {
	var names []drivers.FigureName
	for _, f := range plan.Figures() {
		names = append(names, drivers.FigureName(f.Name))
		if f.Title == "" || f.Unit == "" || f.Doc == "" {
			t.Errorf("figure %s has no title, unit or doc", f.Name)
		}
	}
	if !slices.Equal(names, drivers.Figures()) {
		t.Errorf("plan has the figures %v, package drivers %v", names, drivers.Figures())
	}
	for _, f := range drivers.Figures() {
		for _, s := range plan.FigureStatistics() {
			if !isValue(plan.FigureValue(string(f), s)) {
				t.Errorf("no table can show %s", plan.FigureValue(string(f), s))
			}
		}
	}
}
