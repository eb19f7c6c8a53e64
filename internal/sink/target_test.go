package sink

import (
	"errors"
	"os"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// fakeHost has one file or none, and no variables.
type fakeHost struct{ file string }

func (fakeHost) Getenv(name string) (string, error) { return "", errors.New(name + " is not set") }

func (h fakeHost) ReadFile(string) ([]byte, error) {
	if h.file == "" {
		return nil, os.ErrNotExist
	}
	return []byte(h.file), nil
}

func TestFromEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		env     []string
		want    plan.Influx
		missing string
	}{
		"nothing":    {nil, plan.Influx{}, ""},
		"token only": {[]string{"INFLUX_TOKEN", "x"}, plan.Influx{}, ""},
		"all": {[]string{"INFLUX_URL", "u", "INFLUX_ORG", "o", "INFLUX_BUCKET", "b", "INFLUX_TOKEN", "t"},
			plan.Influx{URL: "${env:INFLUX_URL}", Org: "${env:INFLUX_ORG}", Bucket: "${env:INFLUX_BUCKET}",
				Token: "${env:INFLUX_TOKEN}"}, ""},
		"host": {[]string{"INFLUX_HOST", "u", "INFLUX_BUCKET", "b"},
			plan.Influx{URL: "${env:INFLUX_HOST}", Bucket: "${env:INFLUX_BUCKET}"}, ""},
		"half":  {[]string{"INFLUX_URL", "u", "INFLUX_TOKEN", "t"}, plan.Influx{}, "INFLUX_BUCKET"},
		"empty": {[]string{"INFLUX_URL", "", "INFLUX_BUCKET", "b"}, plan.Influx{}, ""},
		"v2": {[]string{"INFLUXDB_V2_URL", "u", "INFLUXDB_V2_BUCKET", "b", "INFLUXDB_V2_TOKEN", "t",
			"INFLUX_TOKEN", "other"}, plan.Influx{URL: "${env:INFLUXDB_V2_URL}", Bucket: "${env:INFLUXDB_V2_BUCKET}",
			Token: "${env:INFLUXDB_V2_TOKEN}"}, ""},
		"whole v2": {[]string{"INFLUX_URL", "u", "INFLUXDB_V2_URL", "u", "INFLUXDB_V2_BUCKET", "b"},
			plan.Influx{URL: "${env:INFLUXDB_V2_URL}", Bucket: "${env:INFLUXDB_V2_BUCKET}"}, ""},
	} {
		got, missing := FromEnvironment(env(c.env...))
		if missing != c.missing || (got == nil) != (c.want == plan.Influx{}) || got != nil && *got != c.want {
			t.Errorf("%s: %+v, missing %q; want %+v, missing %q", name, got, missing, c.want, c.missing)
		}
	}
}

func TestReadFile(t *testing.T) {
	i, err := ReadFile([]byte(`{"url": "http://h", "bucket": "b", "token": "${file:/t}"}` + "\n"))
	if want := (plan.Influx{URL: "http://h", Bucket: "b", Token: "${file:/t}"}); err != nil || i != want {
		t.Errorf("%+v, %v", i, err)
	}
	for text, words := range map[string]string{
		`{"url": "http://h", "bucket": "b", "tokn": "x"}`: `unknown field "tokn"`,
		`{"url": "http://h"} {"url": "x"}`:                "more than one JSON object",
		`INFLUX_URL=http://h`:                             "use the form {",
		``:                                                "use the form {",
		`{"url": 5}`:                                      "use the form {",
	} {
		if _, err := ReadFile([]byte(text)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
}

func TestResolve(t *testing.T) {
	good := plan.Influx{URL: "https://h/base/", Org: "o", Bucket: "b", Token: "${file:/t}"}
	to, err := Resolve(good, fakeHost{"t0ken\n"})
	if err != nil || to.url != "https://h/base" || to.token != "t0ken" || to.org != "o" || to.bucket != "b" {
		t.Errorf("%v, %v", to, err)
	}
	for _, c := range []struct {
		change func(*plan.Influx)
		words  string
	}{
		{func(i *plan.Influx) { i.URL = "h:8086" }, "URL"},
		{func(i *plan.Influx) { i.URL = "ftp://h" }, "such as http://127.0.0.1:8086"},
		{func(i *plan.Influx) { i.URL = "http://u:hunter2@h" }, "contains a user, password or query"},
		{func(i *plan.Influx) { i.URL = "http://u:hunter2@h/%zz" }, "not a URL"},
		{func(i *plan.Influx) { i.URL = "http://h/?token=x" }, "contains a user, password or query"},
		{func(i *plan.Influx) { i.Bucket = "" }, "bucket"},
		{func(i *plan.Influx) { i.Token = "a\nb" }, "line break"},
		{func(i *plan.Influx) { i.Token = "${env:NONE}" }, "NONE"},
	} {
		i := good
		i.Token = "hunter2"
		c.change(&i)
		_, err := Resolve(i, fakeHost{})
		if err == nil || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v, want %q and no password", i, err, c.words)
		}
	}
	_, err = Resolve(plan.Influx{URL: "${env:U}", Bucket: "b", Token: "${file:/t}"}, fakeHost{})
	if err == nil || !strings.Contains(err.Error(), "${env:U}") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v; want all that is missing at once", err)
	}
}
