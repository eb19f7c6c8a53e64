package artemis

import (
	"errors"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

const oneURL = `{"url": "amqp://127.0.0.1"}`

// These brokers have other protocols, which their own tools use.
func TestLabelNamesTheProtocol(t *testing.T) {
	for _, mode := range []drivers.Mode{drivers.ConfirmWindow, drivers.FireAndForget} {
		for _, persistent := range []bool{true, false} {
			d := declare([]byte(oneURL), drivers.Use{Mode: mode, Persistent: persistent})
			if !strings.Contains(d.Label, " over AMQP 1.0, one disposition per message") {
				t.Errorf("%s, persistent %t: label %q", mode, persistent, d.Label)
			}
		}
	}
}

// Without acknowledgements, a consumer that stops loses messages that it has received.
func TestAutomaticAcknowledgementsKeepNothing(t *testing.T) {
	for ack, kept := range map[drivers.Ack]bool{drivers.AckEach: true, drivers.AckAutomatic: false} {
		d := declare([]byte(oneURL), drivers.Use{Mode: drivers.ConfirmWindow, Persistent: true, Consumers: 1, Ack: ack})
		if p := d.Guarantees; p.SentKept != kept || p.ConfirmedKept != kept {
			t.Errorf("acknowledgements %s: messages are kept: %t, want %t", ack, p.SentKept, kept)
		}
	}
}

// Refused messages are redelivered after later ones, and this broker does not mark redeliveries. Messages of different
// connections are in order only if each is confirmed before the next one is sent.
func TestOrderIsGuaranteed(t *testing.T) {
	for _, c := range []struct {
		mode    drivers.Mode
		nack    bool
		ordered bool
	}{
		{drivers.ConfirmWindow, false, true},
		{drivers.ConfirmWindow, true, false},
		{drivers.FireAndForget, false, true},
		{drivers.ConnectionPerMessage, false, false},
		{drivers.ConnectionPerMessageConfirm, false, true},
	} {
		d := declare([]byte(oneURL), drivers.Use{Mode: c.mode, Persistent: true, Consumers: 1, Ack: drivers.AckEach,
			Nack: c.nack})
		if d.Guarantees.Ordered != c.ordered {
			t.Errorf("mode %s, refusing %t: order is guaranteed: %t, want %t", c.mode, c.nack, d.Guarantees.Ordered,
				c.ordered)
		}
	}
}

// A plan states that the broker's credit limits the messages in flight.
func TestCreditIsNoted(t *testing.T) {
	for inFlight, noted := range map[int]bool{1000: false, 1001: true} {
		for mode, confirmed := range map[drivers.Mode]bool{drivers.ConfirmWindow: true, drivers.FireAndForget: false} {
			all := notes(&options{}, drivers.Use{Mode: mode, MaxInFlight: inFlight})
			if found := strings.Contains(strings.Join(all, "; "), "amqpCredits"); found != (noted && confirmed) {
				t.Errorf("notes of %s with %d in flight: %q", mode, inFlight, all)
			}
		}
	}
}

// TestCleanupRejectsOtherKinds: only addresses are removed.
func TestCleanupRejectsOtherKinds(t *testing.T) {
	err := (&session{}).Cleanup(t.Context(), []drivers.Leftover{{Kind: "queue", Name: "x"}})
	if !errors.Is(err, drivers.ErrUnsupported) || !strings.Contains(err.Error(), `queue "x"`) {
		t.Errorf("cleanup of a queue: %v", err)
	}
}
