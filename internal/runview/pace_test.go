package runview

import (
	"fmt"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/internal/wire"
)

// Tasks that a cell does not need count neither as remaining nor in the estimate, also if its outcomes existed before.
func TestPaceOfCellsThatAreKnownEarly(t *testing.T) {
	until, err := rules.ParseStopRule("ci < 5%", nil)
	if err != nil {
		t.Fatal(err)
	}
	w := plan.Workload{Measure: plan.Duration(time.Second)}
	run := plan.Run{Cells: []plan.Cell{{ID: "a", Workload: w}, {ID: "b", Index: 1, Workload: w}}, Repeat: 10,
		Until: &until}
	s, resumed, numbers := New(run), New(run), map[string]float64{}
	var had []string
	p := s.Pace
	if done, of := p.All(); done != 0 || of != 20 || !p.rounds.Open() {
		t.Errorf("%d of %d, maximum: %v", done, of, p.rounds.Open())
	}
	for n := 1; n <= 6; n++ {
		id := fmt.Sprintf("a-r%d", n)
		o := plan.Outcome{Task: id, Cell: "a", Repetition: n, Verdict: plan.Valid,
			Values: map[string]plan.Value{"publish.rate": {Number: 1000}}}
		s.Apply(wire.Entry{Outcome: &o}, time.Now())
		had = append(had, id)
		numbers[id] = 1000
	}
	resumed.AddDone(had, numbers)
	for _, p := range []*Pace{p, resumed.Pace} {
		if done, of := p.All(); done != 6 || of != 16 || p.Tasks() != 10 || !p.rounds.Open() ||
			p.Planned() != 10*plan.Estimate(w) {
			t.Errorf("%d of %d, %d left, which take %v", done, of, p.Tasks(), p.Planned())
		}
	}
}
