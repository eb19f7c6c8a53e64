package artemis

import (
	"testing"

	"lockstep/pkg/drivers"
)

// What consumers refuse comes again behind later ones, and this broker does not say that it was there before: no order
// can be held against it.
func TestRefusalsAreNotInOrder(t *testing.T) {
	for nack, ordered := range map[bool]bool{false: true, true: false} {
		p := guarantees(&options{}, drivers.Use{Mode: drivers.ConfirmWindow, Persistent: true, Consumers: 1,
			Ack: drivers.AckEach, Nack: nack})
		if p.Ordered != ordered {
			t.Errorf("refusing %t: order is guaranteed: %t, want %t", nack, p.Ordered, ordered)
		}
	}
}
