package artemis

import (
	"errors"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Refused messages are redelivered after later ones, and this broker does not mark redeliveries, so no order can be
// guaranteed.
func TestRefusalsAreNotInOrder(t *testing.T) {
	for nack, ordered := range map[bool]bool{false: true, true: false} {
		p := guarantees(&options{}, drivers.Use{Mode: drivers.ConfirmWindow, Persistent: true, Consumers: 1,
			Ack: drivers.AckEach, Nack: nack})
		if p.Ordered != ordered {
			t.Errorf("refusing %t: order is guaranteed: %t, want %t", nack, p.Ordered, ordered)
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
