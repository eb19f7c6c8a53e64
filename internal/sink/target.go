package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

// Target is an InfluxDB to write to, with resolved secrets. It prints without them.
type Target struct {
	url, org, bucket, token string
	scrub                   *plan.Scrubber
}

// Resolve checks a target and resolves its references. Only the token is a secret; the rest is printed.
func Resolve(i plan.Influx, host plan.Host) (Target, error) {
	token := plan.Influx{Token: i.Token}
	i.Token = ""
	_, err := fill(&i, host)
	scrub, failed := fill(&token, host)
	if err = errors.Join(err, failed); err != nil {
		return Target{}, fmt.Errorf("resolve InfluxDB settings: %w", err)
	}
	i.Token = token.Token
	if err := check(i); err != nil {
		return Target{}, fmt.Errorf("write to InfluxDB at %q: %w", scrub.Scrub(i.URL), err)
	}
	return Target{url: strings.TrimRight(i.URL, "/"), org: i.Org, bucket: i.Bucket, token: i.Token, scrub: scrub}, nil
}

func fill(i *plan.Influx, host plan.Host) (*plan.Scrubber, error) {
	raw, err := json.Marshal(i)
	if err != nil {
		return nil, err
	}
	filled, scrub, err := plan.Resolve(raw, []string{"token"}, host)
	if err != nil {
		return nil, err
	}
	return scrub, json.Unmarshal(filled, i)
}

func check(i plan.Influx) error {
	u, err := url.Parse(i.URL)
	switch {
	case err != nil: // the parse error may contain a password
		return errors.New("not a URL; use a URL such as http://127.0.0.1:8086")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("invalid URL; use a URL such as http://127.0.0.1:8086 or https://host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("the URL contains a user, password or query; use the field token")
	case i.Bucket == "":
		return errors.New("no bucket given; set the field bucket")
	case strings.ContainsAny(i.Token, "\r\n"):
		return errors.New("the token contains a line break; remove it")
	}
	return nil
}

// String returns the target without secrets.
func (t Target) String() string { return fmt.Sprintf("%s bucket %s", t.scrub.Scrub(t.url), t.bucket) }

// GoString equals String, as %#v must not print the token either.
func (t Target) GoString() string { return t.String() }

// ReadFile reads a target from the text of a file. The file has only the JSON of plan.Influx, as between the braces of
// influx in a matrix.
func ReadFile(text []byte) (plan.Influx, error) {
	var i plan.Influx
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&i); err != nil {
		return plan.Influx{}, fmt.Errorf("%s; use the form %s", plan.Redact(err.Error()), fileShape)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return plan.Influx{}, fmt.Errorf("more than one JSON object; use the form %s", fileShape)
	}
	return i, nil
}

const fileShape = `{"url": "http://127.0.0.1:8086", "org": "…", "bucket": "…", "token": "${env:INFLUX_TOKEN}"}`

// environments are the usual variable names, in order of precedence: of the influx command line, and of the client
// libraries.
var environments = []struct{ url, org, bucket, token string }{
	{"INFLUX_URL", "INFLUX_ORG", "INFLUX_BUCKET", "INFLUX_TOKEN"},
	{"INFLUX_HOST", "INFLUX_ORG", "INFLUX_BUCKET", "INFLUX_TOKEN"},
	{"INFLUXDB_V2_URL", "INFLUXDB_V2_ORG", "INFLUXDB_V2_BUCKET", "INFLUXDB_V2_TOKEN"},
}

// FromEnvironment returns the target from environment variables; nil: none is set. It has references to the variables
// instead of their contents. missing is the variable that is missing if only the address is set.
func FromEnvironment(getenv func(string) (string, bool)) (i *plan.Influx, missing string) {
	set := func(name string) string {
		if value, _ := getenv(name); value == "" {
			return ""
		}
		return "${env:" + name + "}"
	}
	for _, e := range environments {
		if set(e.url) == "" {
			continue
		}
		if set(e.bucket) == "" {
			missing = e.bucket
			continue
		}
		return &plan.Influx{URL: set(e.url), Org: set(e.org), Bucket: set(e.bucket), Token: set(e.token)}, ""
	}
	return nil, missing
}
