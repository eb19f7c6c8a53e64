package judge

import (
	"reflect"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// The metrics of side-by-side brokers are not those of the cell, and each broker has its own subject. Judging the
// stored record again gives the same result.
func TestSideBySide(t *testing.T) {
	x := newGroupPair()
	for i, name := range []string{"one", "two"} {
		x.task.Cell.Workload.Groups[i].Broker = &plan.Broker{Name: name, Driver: "fake"}
	}
	x.bulk.steadyLoad(1000, deliverAtOnce)
	x.small.steadyLoad(100, deliverAtOnce)
	x.facts.Subject = plan.Subject{Product: "One", Version: "1"}
	x.facts.Subjects = map[string]plan.Subject{"bulk": x.facts.Subject,
		"small": {Product: "Two", Version: "2", Settings: map[string]string{"url": "fake://u:secret@h/"}}}
	m := x.merge()
	var probes [2][]record.ProbeSample
	for i, level := range []float64{100, 900} {
		for second := range 10 {
			probes[i] = append(probes[i], record.ProbeSample{At: int64(second) * 1e9, Name: "memory", Value: level})
		}
	}
	m.Add(record.Snapshot{Task: x.task.ID, Group: "bulk", Agent: "a", Seq: 99, Probes: probes[0]})
	m.Add(record.Snapshot{Task: x.task.ID, Group: "small", Agent: "c", Seq: 99, Probes: probes[1]})
	o := Judge(x.task, m, x.facts)
	if v := o.Values["broker.memory.p50"]; v.NA != naEachGroup {
		t.Errorf("broker.memory.p50 of the cell: got %+v, want %q", v, naEachGroup)
	}
	for i, want := range []float64{100, 900} {
		g := o.Groups[i]
		if v := g.Values["broker.memory.p50"]; v.NA != "" || v.Number != want {
			t.Errorf("broker.memory.p50 of %s: got %+v, want %v", g.Name, v, want)
		}
		if product := []string{"One", "Two"}[i]; g.Subject == nil || g.Subject.Product != product {
			t.Errorf("subject of %s: got %+v, want %s", g.Name, g.Subject, product)
		}
	}
	again := Judge(x.task, m, FactsOf(o, m))
	if !reflect.DeepEqual(again.Groups, o.Groups) || !reflect.DeepEqual(again.Values, o.Values) {
		t.Error("a new judgement of the stored record gives another outcome")
	}
}
