package matrix

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// A broker has one process or a list, and --set can change either.
func TestProcessOfABroker(t *testing.T) {
	for name, c := range map[string]struct {
		process string
		set     []string
		want    plan.Processes
	}{
		"one": {`process: port: 5672`, nil, plan.Processes{{Port: 5672}}},
		"several": {`process: [{port: 5672}, {command: "beam"}, {pid: 7}]`, nil,
			plan.Processes{{Port: 5672}, {Command: "beam"}, {PID: 7}}},
		"none": {``, nil, nil},
		"set":  {`process: port: 5672`, []string{"brokers.b.process.port=7"}, plan.Processes{{Port: 7}}},
		"set to several": {`process: port: 5672`, []string{"brokers.b.process=[{port: 1}, {port: 2}]"},
			plan.Processes{{Port: 1}, {Port: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			run := expand(t, `name: "x", brokers: b: {driver: "fake", `+c.process+`}`, Narrow{Set: c.set})
			if got := run.Cells[0].Broker.Process; !reflect.DeepEqual(got, c.want) && len(got)+len(c.want) > 0 {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
	for _, wrong := range []string{`process: 7`, `process: [{port: 0}]`, `process: [{ports: 1}]`, `process: ["x"]`} {
		m, err := Load("x.cue", []byte("package matrix\nname: \"x\", brokers: b: {driver: \"fake\", "+wrong+"}\n"),
			Narrow{})
		if err == nil {
			_, err = m.Run(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), "brokers.b.process") {
			t.Errorf("%s: error %v, want one that names the place", wrong, err)
		}
	}
}

// Churn of bindings has defaults that do not change cells, and limits.
func TestChurnOfBindings(t *testing.T) {
	plain := expand(t, `name: "x", brokers: b: driver: "fake"`, Narrow{})
	same := expand(t, `name: "x", brokers: b: driver: "fake", cell: topology: churn: {rate: 0, hold: "1s", probes: 10}`,
		Narrow{})
	if plain.Cells[0].ID != same.Cells[0].ID ||
		plain.Cells[0].Workload.Topology.Churn != (plan.Churn{Hold: plan.Default().Topology.Churn.Hold, Probes: 10}) {
		t.Errorf("%+v: want no bindings by default, and no other cell for saying so",
			plain.Cells[0].Workload.Topology.Churn)
	}
	for _, wrong := range []string{"rate: -1", "rate: 1e9", `hold: "0s"`, "probes: 0"} {
		m,
			err := Load("x.cue",
			[]byte("package matrix\nname: \"x\", brokers: b: driver: \"fake\", cell: topology: churn: "+wrong+"\n"),
			Narrow{})
		if err == nil {
			_, err = m.Run(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), "topology.churn") {
			t.Errorf("%s: error %v, want one that names the place", wrong, err)
		}
	}
}
