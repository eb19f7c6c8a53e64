package plan

import (
	"encoding/json"
	"reflect"
	"testing"
)

// Zero is a number. If it were omitted, it would be read as unknown.
func TestValueOfZeroIsANumber(t *testing.T) {
	for want, v := range map[string]Value{
		`{"number":0}`:                         {},
		`{"number":2.5,"flags":["skewed"]}`:    {Number: 2.5, Flags: []Flag{Skewed}},
		`{"na":"backlog","flags":["backlog"]}`: {NA: "backlog", Flags: []Flag{Backlog}},
	} {
		text, err := json.Marshal(v)
		if err != nil || string(text) != want {
			t.Errorf("%+v is written as %s, %v; want %s", v, text, err, want)
		}
		var back Value
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, v) {
			t.Errorf("%s is read as %+v, %v; want %+v", text, back, err, v)
		}
	}
}

// Files beside the folders of runs cannot be the names of runs.
func TestNamesOfRuns(t *testing.T) {
	for id, valid := range map[string]bool{"2026-11-24-quick": true, "history": true, "": false, "latest": false,
		".hidden": false, "a/b": false, "a\nb": false, "history.db": false, "baselines.jsonl": false} {
		if err := CheckRunID(id); (err == nil) != valid {
			t.Errorf("id %q of a run: got error %v, want valid %v", id, err, valid)
		}
	}
}
