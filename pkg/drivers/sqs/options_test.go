package sqs

import (
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

func TestOptionsThatDoNotGo(t *testing.T) {
	cases := []struct{ options, want string }{
		{`{"endpoint": "http://user:hunter2@h"}`, "credentials are accessKey and secret"},
		{`{"region": "r", "accessKey": "a"}`, "go together"},
		{`{"region": "r", "secret": "hunter2"}`, "go together"},
		{`{"accessKey": "a", "secret": "hunter2"}`, "need a region"},
		{`{"sessionToken": "hunter2"}`, "sessionToken goes with"},
		{`{"groups": 2}`, "fifo: true"},
		{`{"visibility": "13h"}`, "visibility"},
	}
	for _, c := range cases {
		d := declare(schematest.Fill(t, driver{}, c.options), drivers.Use{})
		if len(d.Rejections) != 1 || len(d.Capabilities.Modes) > 0 || !strings.Contains(d.Rejections[0], c.want) {
			t.Errorf("%s: rejected %v, want one reason with %q and no modes", c.options, d.Rejections, c.want)
		}
		if strings.Contains(strings.Join(d.Rejections, ""), "hunter2") {
			t.Errorf("%s: the reason tells the secret: %v", c.options, d.Rejections)
		}
	}
}

func TestLabelAndPromises(t *testing.T) {
	cases := []struct {
		options  string
		use      drivers.Use
		label    string
		ordered  bool
		interval bool // as the acknowledgement mode
		notes    int
	}{
		{`{}`, drivers.Use{Mode: drivers.ConfirmEach}, "standard, confirm: stored redundantly by AWS", false, true, 0},
		{`{"endpoint": "http://h:9324"}`, drivers.Use{Mode: drivers.ConfirmEach},
			"standard, confirm: taken by the server at the endpoint, stored as that is set", false, true, 0},
		{`{"fifo": true}`, drivers.Use{Mode: drivers.ConfirmWindow, Consumers: 1, Queues: 1},
			"FIFO with high throughput, confirm: stored redundantly by AWS", true, false, 0},
		{`{"fifo": true, "requests": 2}`, drivers.Use{Mode: drivers.ConfirmWindow},
			"FIFO with high throughput, confirm: stored redundantly by AWS", false, false, 0},
		{`{"fifo": true, "highThroughput": false, "requests": 2}`, drivers.Use{Mode: drivers.ConfirmBatch},
			"FIFO, confirm: stored redundantly by AWS", true, false, 0},
		{`{"fifo": true, "groups": 2}`, drivers.Use{Mode: drivers.ConfirmEach, Consumers: 6, Queues: 2},
			"FIFO with high throughput, confirm: stored redundantly by AWS", true, false, 1},
	}
	for _, c := range cases {
		d := declare(schematest.Fill(t, driver{}, c.options), c.use)
		if len(d.Rejections) > 0 || d.Label != c.label || d.Guarantees.Ordered != c.ordered || len(d.Notes) != c.notes {
			t.Errorf("%s, %+v: %q, %+v, rejected %v, notes %v", c.options, c.use, d.Label, d.Guarantees, d.Rejections,
				d.Notes)
		}
		if got := slices.Contains(d.Capabilities.Acks, drivers.AckInterval); got != c.interval {
			t.Errorf("%s: acknowledges at intervals: %v", c.options, got)
		}
		if d.Guarantees.NoDuplicates || !d.Guarantees.ConfirmedKept || d.Guarantees.SentKept {
			t.Errorf("%s: guarantees %+v", c.options, d.Guarantees)
		}
	}
}

func TestAddress(t *testing.T) {
	for endpoint, want := range map[string]string{
		"": "sqs.r", "http://h": "h:80", "https://h": "h:443", "http://h:9324": "h:9324", "http://[::1]": "[::1]:80",
	} {
		if got := (&options{Endpoint: endpoint, Region: "r"}).address(); got != want {
			t.Errorf("%q is at %s, want %s", endpoint, got, want)
		}
	}
}
