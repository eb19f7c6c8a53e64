package plan

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// grouped is a task of two groups: "bulk" with 2 publishing and 1 consuming agent, "small" with 1 agent for both.
func grouped() Task {
	w := Default()
	group := func(name string, nodes, threads, size int, colocate bool) Group {
		d := Default()
		g := Group{Name: name, Publishers: d.Publishers, Consumers: d.Consumers, Topology: d.Topology,
			Message: d.Message, Label: "label of " + name}
		g.Publishers.Nodes, g.Publishers.Threads, g.Message.Size, g.Consumers.Colocate = nodes, threads, size, colocate
		return g
	}
	w.Groups = []Group{group("bulk", 2, 3, 100_000, false), group("small", 1, 1, 100, true)}
	return Task{Run: "r", ID: "c-r1", Cell: Cell{ID: "c", Workload: w}}
}

func TestAssignGroups(t *testing.T) {
	task := grouped()
	if n := task.Cell.Agents(); n != 4 {
		t.Fatalf("the cell needs %d agents, want 3 of bulk and 1 of small", n)
	}
	type part struct {
		agent, group, topic   string
		index, size           int
		publishers, consumers Share
	}
	want := []part{
		{"a", "bulk", "lockstep-r-c-r1-bulk", 0, 100_000, Share{0, 3, 6}, Share{Total: 1}},
		{"b", "bulk", "lockstep-r-c-r1-bulk", 1, 100_000, Share{3, 3, 6}, Share{Total: 1}},
		{"c", "bulk", "lockstep-r-c-r1-bulk", 2, 100_000, Share{Total: 6}, Share{0, 1, 1}},
		{"d", "small", "lockstep-r-c-r1-small", 0, 100, Share{0, 1, 1}, Share{0, 1, 1}},
	}
	var got []part
	for _, a := range Assign(task, []string{"a", "b", "c", "d", "e"}) {
		got = append(got, part{a.Agent, a.Task.Group, a.Task.Topic(), a.Index, a.Task.Cell.Workload.Message.Size,
			a.Publishers, a.Consumers})
		if a.Task.ID != task.ID || len(a.Task.Cell.Workload.Groups) > 0 ||
			a.Task.Cell.Label != "label of "+a.Task.Group || a.Deadline <= 0 {
			t.Errorf("agent %s: task %+v", a.Agent, a.Task)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, p := range task.Parts() {
		if !strings.HasPrefix(p.Topic(), task.Topic()) {
			t.Errorf("%s does not begin with %s: nobody would find what a killed run left", p.Topic(), task.Topic())
		}
	}
}

// TestIDOfGroups proves that the load of a group is part of the cell's id, but not what drivers declare, nor fields
// with defaults.
func TestIDOfGroups(t *testing.T) {
	const want = "917c94f4a3bd" // users' histories contain it
	same := grouped().Cell.Workload
	if id := CellID("rabbit", same); id != want {
		t.Errorf("id %s, want %s", id, want)
	}
	said := grouped().Cell.Workload
	said.Groups[0].Label, said.Groups[0].Guarantees.Ordered, said.Groups[1].CopiesBody = "another release's words",
		true, true
	if id := CellID("rabbit", said); id != want {
		t.Errorf("what the driver says gives another id")
	}
	changes := map[string]func(w *Workload){
		"rate of a group": func(w *Workload) { w.Groups[0].Publishers.Rate = 10 },
		"name of a group": func(w *Workload) { w.Groups[1].Name = "tiny" },
		"fewer groups":    func(w *Workload) { w.Groups = w.Groups[:1] },
		"none":            func(w *Workload) { w.Groups = nil },
	}
	for name, change := range changes {
		w := grouped().Cell.Workload
		change(&w)
		if CellID("rabbit", w) == want {
			t.Errorf("%s: the same id", name)
		}
	}
	if text, _ := json.Marshal(canonicalGroups(same.Groups)); strings.Contains(string(text), "prefetch") {
		t.Errorf("defaults are in the id: %s", text)
	}
}

func TestValuesOfGroups(t *testing.T) {
	o := Outcome{Values: map[string]Value{"sent": {Number: 3}},
		Groups: []GroupOutcome{{Name: "bulk", Values: map[string]Value{"sent": {Number: 1}}}}}
	for name, want := range map[string]float64{"sent": 3, "bulk/sent": 1} {
		if v, has := o.Value(name); !has || v.Number != want {
			t.Errorf("%s is %v, %v; want %v", name, v, has, want)
		}
	}
	for _, name := range []string{"bulk/received", "small/sent", "received"} {
		if v, has := o.Value(name); has || !reflect.DeepEqual(v, Value{}) {
			t.Errorf("%s is %v though there is none", name, v)
		}
	}
}
