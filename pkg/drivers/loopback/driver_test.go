package loopback_test

import (
	"context"
	"encoding/json"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

func TestConformance(t *testing.T) {
	for name, options := range map[string]string{
		"plain":   `{"name":"conformance"}`,
		"delayed": `{"name":"conformance","delay":"2ms","confirmDelay":"1ms","rate":100000}`,
		"spread":  `{"name":"conformance","delay":{"min":"1ms","max":"3ms"},"confirmDelay":{"mean":"1ms"},"resilience":"none"}`,
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{
				Driver:      loopback.Driver{},
				Options:     json.RawMessage(options),
				FullOptions: json.RawMessage(`{"name":"conformance","capacity":10}`),
				Reject:      &drivertest.Rejection{Options: json.RawMessage(`{"name":"conformance","reject":7}`)},
				Cut:         func() { loopback.Cut("conformance") },
				NoNetwork:   true,
				Existing:    existing,
			})
		})
	}
}

// existing declares a topology of loopback in a session of its own.
var existing = drivertest.Declared(loopback.Driver{}, func(_ context.Context, _ drivers.Session, t drivers.Topology,
	made *drivertest.Existing) error {
	made.Queue = t.Name
	return nil
})
