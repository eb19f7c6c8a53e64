package plan

import (
	"encoding/json"
	"testing"
	"time"
)

// Users' histories contain these ids. If one changes, the history of that cell is lost.
func TestCellIDsAreStable(t *testing.T) {
	window := Default()
	window.Publishers.MaxInFlight, window.Publishers.Threads = 10_000, 5
	slow := Default()
	slow.Network.Latency, slow.Publishers.Mode = Duration(5*time.Millisecond), "confirm-each"
	labelled := Default()
	labelled.Labels = map[string]string{"b": "2", "a": "1"}
	empty := Default()
	empty.Consumers.Nodes = 0
	empty.Publishers.On = Labels{} // no requirement
	for _, c := range []struct {
		name, broker string
		work         Workload
		want         string
	}{
		{"nothing but defaults", "rabbit", Default(), "e23b7acec4a8"},
		{"another broker", "nats", Default(), "2dd750de452f"},
		{"window and threads", "rabbit", window, "18525835192c"},
		{"latency and mode", "rabbit", slow, "f1ac3255a878"},
		{"labels", "rabbit", labelled, "cf3543f68260"},
		{"no consumers", "rabbit", empty, "cbd1ff5725e3"},
	} {
		if got := CellID(c.broker, c.work); got != c.want {
			t.Errorf("%s: id %s, want %s", c.name, got, c.want)
		}
	}
}

// A new field must not change an id at its default: the canonical form only has fields that differ from the default.
func TestDefaultsAreNotInTheID(t *testing.T) {
	w := Default()
	w.Publishers.Threads = 3
	now, before := generic(w), generic(Default())
	added, addedBefore := generic(w), generic(Default())
	added["novelty"], addedBefore["novelty"] = map[string]any{"depth": 1.0}, map[string]any{"depth": 1.0}
	a, _ := json.Marshal(without(now, before))
	b, _ := json.Marshal(without(added, addedBefore))
	if string(a) != string(b) {
		t.Errorf("a new field at its default changes the canonical form from %s to %s", a, b)
	}
	if string(a) != `{"publishers":{"threads":3}}` {
		t.Errorf("canonical form %s holds more than what differs from the defaults", a)
	}
	added["novelty"] = map[string]any{"depth": 2.0}
	if c, _ := json.Marshal(without(added, addedBefore)); string(c) == string(b) {
		t.Error("a new field beside its default does not enter the canonical form")
	}
}

func TestEveryFieldEntersTheID(t *testing.T) {
	plain := CellID("b", Default())
	for name, change := range map[string]func(*Workload){
		"measure":  func(w *Workload) { w.Measure++ },
		"warmup":   func(w *Workload) { w.Warmup = 0 },
		"rate":     func(w *Workload) { w.Publishers.Rate = 0.5 },
		"colocate": func(w *Workload) { w.Consumers.Colocate = true },
		"prefetch": func(w *Workload) { w.Consumers.Prefetch = 0 },
		"batch":    func(w *Workload) { w.Publishers.Batch.Min = 1 },
		"size":     func(w *Workload) { w.Message.Size++ },
		"drain":    func(w *Workload) { w.Drain.Timeout++ },
		"on":       func(w *Workload) { w.Consumers.On = Labels{"zone": "a"} },
	} {
		w := Default()
		change(&w)
		if CellID("b", w) == plain {
			t.Errorf("%s does not enter the cell id", name)
		}
	}
}
