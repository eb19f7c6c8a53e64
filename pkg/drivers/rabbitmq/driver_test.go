package rabbitmq

import (
	"encoding/json"
	"testing"

	"lockstep/pkg/drivers/drivertest"
)

func TestConformance(t *testing.T) {
	cases := []struct{ name, options string }{
		{"classic", `{}`},
		{"classic-default-exchange", `{"exchange": {"type": "default"}}`},
		{"quorum", `{"queue": {"type": "quorum"}}`},
		{"stream", `{"queue": {"type": "stream"}}`},
		{"headers", `{"exchange": {"type": "headers"}}`},
		{"fanout", `{"exchange": {"type": "fanout"}}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { drivertest.Run(t, harness(single(t, c.options), "rabbitmq")) })
	}
}

func TestConformanceCluster(t *testing.T) {
	cases := []struct{ name, options string }{
		{"quorum", `{"queue": {"type": "quorum"}}`},
		{"stream", `{"queue": {"type": "stream"}}`},
		{"mirrored", `{"policy": {"ha-mode": "all", "ha-sync-mode": "automatic"}}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { drivertest.Run(t, harness(cluster(t, c.options), "")) })
	}
}

// harness restarts the broker of that name, if it is given.
func harness(options json.RawMessage, restart string) drivertest.Harness {
	h := drivertest.Harness{
		Driver:      driver{},
		Options:     options,
		DeadOptions: json.RawMessage(`{"url": "amqp://somebody:secret@127.0.0.1:1/"}`),
		DeadAddress: "127.0.0.1:1",
		Slow:        true,
	}
	if restart != "" {
		h.Restart = func(t *testing.T) { disturb(t, "restart", restart) }
	}
	return h
}
