package matrix

import (
	"slices"
	"strings"
	"testing"
)

func TestTargets(t *testing.T) {
	targets, err := Targets("d.cue", []byte(`targets: {
		b: {process: port: 5672, start: ["x", "y"]}
		a: {process: pid: 7}
		c: {isolate: ["x"], heal: ["y"]}
	}`))
	if err != nil || len(targets) != 3 || targets[0].Name != "a" || targets[1].Process.Port != 5672 ||
		targets[1].Start[1] != "y" {
		t.Fatalf("%+v, %v", targets, err)
	}
	for i, want := range [][]string{{"pause"}, {"pause", "kill", "restart"}, {"isolate"}} {
		if got := targets[i].Kinds(); !slices.Equal(got, want) {
			t.Errorf("%s can %v, want %v", targets[i].Name, got, want)
		}
	}
	if _, err := Targets("d.json", []byte(`{"targets": {"a": {"process": {"port": 1}}}}`)); err != nil {
		t.Errorf("JSON: %v", err)
	}
}

func TestErrorsOfTargets(t *testing.T) {
	_, err := Targets("d.cue", []byte(`targets: {
	a: {process: port: 70000}
	b: {process: pid: 7, start: ["x"]}
	c: {isolate: ["x"]}
	d: {proces: port: 1}
	e: {process: {port: 1, command: "x"}}
	f: {}
}
`))
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{"d.cue:2:21: targets.a.process.port",
		`d.cue:5:6: targets.d.proces: unknown field "proces"; did you mean "process"?`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	_, err = Targets("d.cue", []byte(`targets: {
	b: {process: pid: 7, start: ["x"]}
	c: {isolate: ["x"]}
	e: {process: {port: 1, command: "x"}}
	f: {}
}
`))
	for _, want := range []string{"d.cue:2:", "needs port or command", "d.cue:3:", "only one of isolate and heal", "d.cue:4:", "has several of pid",
		"d.cue:5:", "no fault is possible"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if _, err := Targets("d.cue", []byte(`targets: {}`)); err == nil {
		t.Error("a file that names nothing was taken")
	}
}
