package plan

import (
	"encoding/json"
	"reflect"
	"testing"
)

// An old record with a single process is read as a list of one.
func TestProcessesReadOneOrSeveral(t *testing.T) {
	for text, want := range map[string]Processes{
		`{"name":"b","process":{"port":5672}}`:                  {{Port: 5672}},
		`{"name":"b","process":[{"pid":7},{"command":"beam"}]}`: {{PID: 7}, {Command: "beam"}},
		`{"name":"b"}`: nil,
	} {
		var b Broker
		if err := json.Unmarshal([]byte(text), &b); err != nil || !reflect.DeepEqual(b.Process, want) {
			t.Errorf("%s is read as %+v, %v; want %+v", text, b.Process, err, want)
		}
		written, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var again Broker
		if err := json.Unmarshal(written, &again); err != nil || !reflect.DeepEqual(again.Process, b.Process) {
			t.Errorf("%s comes back as %+v, %v", written, again, err)
		}
	}
	var b Broker
	if err := json.Unmarshal([]byte(`{"process": 5672}`), &b); err == nil {
		t.Error("a number is read as a process")
	}
}

// The value of an axis has one line, also if it was read from a record, which is indented.
func TestCoordinatesHaveOneLine(t *testing.T) {
	for value, want := range map[string]string{`"a b"`: "a b", `5`: "5", "{\n  \"max\": [\n    1\n  ]\n}": `{"max":[1]}`} {
		if got := (Coordinate{Axis: "x", Value: json.RawMessage(value)}).Text(); got != want {
			t.Errorf("%s reads %q, want %q", value, got, want)
		}
	}
}
