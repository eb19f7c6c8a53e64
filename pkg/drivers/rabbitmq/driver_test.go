package rabbitmq

import (
	"encoding/json"
	"testing"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/drivertest"
)

func TestConformance(t *testing.T) {
	cases := []struct{ name, options, restart string }{
		{"classic", `{}`, "rabbitmq"},
		{"classic-default-exchange", `{"exchange": {"type": "default"}}`, ""},
		// RabbitMQ 3.10 elects no leader for a quorum queue of one member after its node was killed.
		{"quorum", `{"queue": {"type": "quorum"}}`, ""},
		{"stream", `{"queue": {"type": "stream"}}`, "rabbitmq"},
		{"headers", `{"exchange": {"type": "headers"}}`, ""},
		{"fanout", `{"exchange": {"type": "fanout"}}`, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { drivertest.Run(t, harness(single(t, c.options), c.restart)) })
	}
	t.Run("classic-persistent", func(t *testing.T) {
		h := harness(single(t, `{}`), "")
		h.Driver = persistent{}
		drivertest.Run(t, h)
	})
}

// persistent is the driver for use with persistent messages alone, of which it promises the most.
type persistent struct{ driver }

func (p persistent) Info() drivers.Info {
	info := p.driver.Info()
	plain := info.Declare
	info.Declare = func(options json.RawMessage, use drivers.Use) drivers.Declaration {
		d := plain(options, use)
		d.Capabilities.Transient = false
		return d
	}
	return info
}

// The node that all links lead to is restarted; the others keep the queue.
func TestConformanceCluster(t *testing.T) {
	cases := []struct{ name, options, restart string }{
		{"quorum", `{"queue": {"type": "quorum"}}`, "rabbitmq3-1"},
		{"stream", `{"queue": {"type": "stream"}}`, ""},
		{"mirrored", `{"policy": {"ha-mode": "all", "ha-sync-mode": "automatic"}}`, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { drivertest.Run(t, harness(cluster(t, c.options), c.restart)) })
	}
}

// harness restarts the broker of that name, if it is given.
func harness(options json.RawMessage, restart string) drivertest.Harness {
	h := drivertest.Harness{
		Driver:      driver{},
		Options:     options,
		DeadOptions: json.RawMessage(`{"url": "amqp://somebody:secret@127.0.0.1:1/"}`),
		DeadAddress: "127.0.0.1:1",
	}
	if restart != "" {
		h.Restart = func(t *testing.T) { disturb(t, "restart", restart) }
	}
	return h
}
