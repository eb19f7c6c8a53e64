package external

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Deliveries that wait for the handler are dropped when a consumer stops. With automatic acknowledgements, the broker
// does not have them any more.
func TestGuaranteesWithoutAcknowledgements(t *testing.T) {
	d := description{Declares: []rule{{Guarantees: json.RawMessage(`{"confirmedKept": true, "sentKept": true, "ordered": true}`)}}}
	for _, x := range []struct {
		use  drivers.Use
		kept bool
	}{
		{drivers.Use{Consumers: 1, Ack: drivers.AckEach}, true},
		{drivers.Use{Consumers: 1, Ack: drivers.AckAutomatic}, false},
		{drivers.Use{Ack: drivers.AckAutomatic}, true},
	} {
		want := drivers.Guarantees{ConfirmedKept: x.kept, SentKept: x.kept, Ordered: true}
		if got := d.declare(json.RawMessage(`{}`), x.use).Guarantees; got != want {
			t.Errorf("%d consumers, ack %q: %+v, want %+v", x.use.Consumers, x.use.Ack, got, want)
		}
	}
}

// TestRedeliverAfter proves that a rule gives the time itself, or the name of the option that has it, as a duration or
// in seconds.
func TestRedeliverAfter(t *testing.T) {
	describe := func(redeliverAfter string) (description, error) {
		text, err := json.Marshal(map[string]any{
			"protocol": protocol, "name": "x", "version": "1", "doc": "A driver.", "schema": "#Options: {...}",
			"declares": []any{map[string]any{"modes": drivers.Modes(), "acks": []string{"each"}, "label": "x",
				"redeliverAfter": redeliverAfter}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return readDescription(text)
	}
	for _, x := range []struct {
		said, options string
		want          time.Duration
	}{
		{"", `{}`, 0},
		{"1m30s", `{}`, 90 * time.Second},
		{"options.ackWait", `{"ackWait": 2.5}`, 2500 * time.Millisecond},
		{"options.ack.wait", `{"ack": {"wait": "40s"}}`, 40 * time.Second},
	} {
		d, err := describe(x.said)
		if err != nil {
			t.Fatalf("%q: %v", x.said, err)
		}
		if got := d.declare(json.RawMessage(x.options), drivers.Use{}); got.RedeliverAfter != x.want ||
			len(got.Rejections) > 0 {
			t.Errorf("%q of %s: %v, rejected %v; want %v", x.said, x.options, got.RedeliverAfter, got.Rejections,
				x.want)
		}
	}
	if _, err := describe("soon"); err == nil || !strings.Contains(err.Error(),
		`declares[0]: redeliverAfter: invalid duration soon`) {
		t.Errorf("%v; want what is wrong", err)
	}
	d, err := describe("options.ackWait")
	if err != nil {
		t.Fatal(err)
	}
	if got := d.declare(json.RawMessage(`{}`), drivers.Use{}); len(got.Rejections) != 1 ||
		!strings.Contains(got.Rejections[0], "options.ackWait") {
		t.Errorf("rejected %v; want that there is no option ackWait", got.Rejections)
	}
}
