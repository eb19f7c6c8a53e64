package kit_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

type options struct {
	kit.Addresses
	Password string         `json:"password"`
	Count    int            `json:"count"`
	Wait     kit.Duration   `json:"wait"`
	Topic    map[string]any `json:"topic"`
}

func (o *options) Check() error {
	if o.Count > 1 {
		return errors.New("count: give 1")
	}
	return nil
}

func TestDecode(t *testing.T) {
	o, err := kit.Decode[options]("fake", json.RawMessage(`{"url": "a", "wait": "1m30s", "topic": {"n": 9007199254740993}}`))
	if err != nil || o.URL != "a" || o.Wait.Std() != 90*time.Second || o.Topic["n"] != json.Number("9007199254740993") {
		t.Errorf("%+v, %v", o, err)
	}
	for text, want := range map[string]string{
		`{"password": "hunter2", "cuont": 1}`:            `unknown field "cuont"`,
		`{"password": "hunter2", "count": 2}`:            "count: give 1",
		`{"password": "hunter2", "count": "hunter2"}`:    "count",
		`{"password": {"hunter2": 1}}`:                   "password",
		`{"password": "hunter2", "wait": 5}`:             "wait",
		`{"password": "hunter2", "wait": "9999999999h"}`: "write it like",
		`{"password": "hunter2"`:                         "unexpected EOF",
	} {
		_, err := kit.Decode[options]("fake", json.RawMessage(text))
		if err == nil || !strings.HasPrefix(err.Error(), "read fake options: ") || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q without the password", text, err, want)
		}
	}
}

// A duration is written as it is read, so that the settings of a broker show it.
func TestDurationIsText(t *testing.T) {
	written, err := json.Marshal(kit.Duration(90 * time.Second))
	var read kit.Duration
	if err == nil {
		err = json.Unmarshal(written, &read)
	}
	if err != nil || string(written) != `"1m30s"` || read.Std() != 90*time.Second {
		t.Errorf("90 s is written as %s and read as %v: %v", written, read, err)
	}
}

// Valid options are passed on, with reasons that apply. The error of invalid ones is the only rejection.
func TestDeclare(t *testing.T) {
	declare := kit.Declare("fake", func(o *options, use drivers.Use) drivers.Declaration {
		var all kit.Reasons
		all.If(use.Queues > 1, "%d queues with count %d", use.Queues, o.Count)
		all.If(use.Keys, "keys")
		return drivers.Declaration{Rejections: all, Label: o.URL}
	})
	d := declare(json.RawMessage(`{"url": "a", "count": 1}`), drivers.Use{Queues: 2})
	if d.Label != "a" || !slices.Equal(d.Rejections, []string{"2 queues with count 1"}) {
		t.Errorf("declaration %+v, want the label a and one rejection", d)
	}
	d = declare(json.RawMessage(`{"count": 2}`), drivers.Use{Queues: 2})
	if !slices.Equal(d.Rejections, []string{"read fake options: count: give 1"}) {
		t.Errorf("rejections %q, want the error of the options", d.Rejections)
	}
}
