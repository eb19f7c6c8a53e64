package all

import (
	"slices"
	"testing"

	"lockstep/pkg/drivers"
)

// A program without one of the drivers would refuse matrices that the documentation promises.
func TestEveryDriverIsLinked(t *testing.T) {
	if got, want := drivers.Names(), []string{"activemq", "artemis", "eventstore", "kafka", "loopback", "mongodb", "nats", "rabbitmq", "sqs"}; !slices.Equal(got, want) {
		t.Errorf("linked drivers are %v, want %v", got, want)
	}
}
