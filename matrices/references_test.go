package matrices

import (
	"fmt"
	"testing"

	"example.org/lockstep/lockstep/internal/matrix"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

// A password in a broker's address may be a reference, which only the agent's host can resolve.
func TestReferencesInAddresses(t *testing.T) {
	for driver, options := range map[string]string{
		"rabbitmq": `url: "amqp://u:${env:P}@h:5672/"`, "nats": `urls: ["nats://u:${env:P}@h:4222"]`,
		"mongodb": `url: "mongodb://u:${env:P}@h:27017/"`,
		"artemis": `url: "amqp://u:${env:P}@h:5672"`, "activemq": `url: "amqp://u:${env:P}@h:5672"`,
		"eventstore": `url: "esdb://u:${env:P}@h:2113"`,
	} {
		text := fmt.Sprintf("package m\nname: \"x\"\nbrokers: b: {driver: %q, options: {%s}}\naxes: mode: [\"confirm-window\"]\ncell: axis: _\n", driver, options)
		m, err := matrix.Load("m.cue", []byte(text), matrix.Narrow{})
		if err == nil {
			_, err = m.Run(t.Context())
		}
		if err != nil {
			t.Errorf("%s: %v", driver, err)
		}
	}
}
