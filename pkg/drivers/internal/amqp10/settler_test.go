package amqp10

import (
	"errors"
	"testing"

	"github.com/Azure/go-amqp"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// A message is accepted by the broker only if its outcome states it.
func TestVerdict(t *testing.T) {
	cases := map[amqp.DeliveryState]error{
		&amqp.StateAccepted{}: nil,
		&amqp.StateRejected{}: drivers.ErrRejected,
		&amqp.StateRejected{Error: &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded}}: drivers.ErrRejected,
		&amqp.StateReleased{}: drivers.ErrRejected,
		&amqp.StateModified{}: drivers.ErrRejected,
		nil:                   drivers.ErrRejected,
	}
	for state, want := range cases {
		if err := verdict(state); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("%T: %v, want %v", state, err, want)
		}
	}
}
