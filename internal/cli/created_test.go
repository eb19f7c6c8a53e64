package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
)

// TestCreatedRunsAreRecognised proves that ctl recognises the record of a run that it submitted, also after the
// transfer and without secrets. A record with any other plan is foreign.
func TestCreatedRunsAreRecognised(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	text := `brokers: b: options: {url: "amqp://u:p&w<d@h/?a=1&b=2", password: "hunter2", token: "${env:T}"} // "token": "x\"y"`
	run := plan.Run{Version: plan.RecordFormat, ID: "run-1", Name: "n", Repeat: 2, Started: time.Now(),
		Axes: []string{"<"}, Influx: &plan.Influx{URL: "http://u:pw@h", Token: "tok"},
		Source: plan.Source{File: "m.cue", Text: text, Set: []string{`x.password="hunter2"`, "a<b&c"}},
		Cells: []plan.Cell{{ID: "c0ffee", Workload: plan.Default(),
			Coordinates: []plan.Coordinate{{Axis: "<", Value: json.RawMessage(`"a&b<c>"`)}},
			Broker: plan.Broker{Name: "b", Driver: "rabbitmq",
				Options: json.RawMessage(`{ "url":"amqp://u:p&w<d@h/?a=1&b=2", "password": "hunter2","n":1.50 }`)}}}}
	if created(run) {
		t.Error("a run is known before it was submitted")
	}
	if err := noteCreated(run); err != nil {
		t.Fatal(err)
	}
	sent, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	var received plan.Run
	if err := json.Unmarshal(sent, &received); err != nil {
		t.Fatal(err)
	}
	received.Bases, received.Ceilings = []plan.Base{{Name: "nightly"}}, []plan.Ceiling{{}} // added by the controller
	folder := t.TempDir()
	if _, err := runs.Create(folder, received); err != nil {
		t.Fatal(err)
	}
	record, err := runs.Open(folder, "run-1")
	if err != nil {
		t.Fatal(err)
	}
	if !created(record.Plan()) {
		t.Error("the record of a run that was submitted here is not known")
	}
	for name, change := range map[string]func(*plan.Run){
		"id":      func(r *plan.Run) { r.ID = "run-2" },
		"text":    func(r *plan.Run) { r.Source.Text += " " },
		"path":    func(r *plan.Run) { r.Source.Path = "/etc/shadow" },
		"server":  func(r *plan.Run) { r.Source.Server = "nats://h" },
		"payload": func(r *plan.Run) { r.Cells[0].Workload.Message.Payload.File = "/etc/shadow" },
		"influx":  func(r *plan.Run) { r.Influx = &plan.Influx{URL: "http://h2"} },
		"secret": func(r *plan.Run) { // in place of ***
			r.Cells[0].Broker.Options = json.RawMessage(strings.Replace(string(r.Cells[0].Broker.Options), "***@h",
				"***@evil/${env:A}@h", 1))
		},
		"secret's URL": func(r *plan.Run) {
			r.Source.Text = strings.Replace(r.Source.Text, "***@h", "${env:A}@evil/v@h",
				1)
		},
		"options": func(r *plan.Run) { r.Cells[0].Broker.Options = json.RawMessage(`{"url":"amqp://h2/"}`) },
	} {
		other, err := runs.Open(folder, "run-1")
		if err != nil {
			t.Fatal(err)
		}
		p := other.Plan()
		if change(&p); created(p) {
			t.Errorf("a plan with another %s is taken for the one that was submitted here", name)
		}
	}
	name, err := createdFile()
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(name)
	if err != nil || strings.Contains(string(list), "hunter2") || strings.Count(string(list), "\n") != 1 {
		t.Errorf("%s has %q, %v", filepath.Base(name), list, err)
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	if created(record.Plan()) {
		t.Error("another user is taken for this one")
	}
}
