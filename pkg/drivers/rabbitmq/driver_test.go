package rabbitmq

import (
	"encoding/json"
	"testing"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/drivertest"
)

func TestConformance(t *testing.T) {
	cases := []struct {
		name, options, restart string
		brief                  bool
	}{
		{"classic", `{}`, "rabbitmq", false},
		{"classic-default-exchange", `{"exchange": {"type": "default"}}`, "", true},
		// RabbitMQ 3.10 elects no leader for a quorum queue of one member after its node was killed; the cluster's are cut and restarted.
		{"quorum", `{"queue": {"type": "quorum"}}`, "", true},
		{"stream", `{"queue": {"type": "stream"}}`, "rabbitmq", false},
		{"headers", `{"exchange": {"type": "headers"}}`, "", true},
		{"fanout", `{"exchange": {"type": "fanout"}}`, "", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := harness(single(t, c.options), c.restart)
			h.Brief = c.brief
			drivertest.Run(t, h)
		})
	}
	t.Run("classic-persistent", func(t *testing.T) {
		h := harness(single(t, `{}`), "")
		h.Driver, h.Brief = persistent{}, true
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
	cases := []struct {
		name, options, restart string
		brief                  bool
	}{
		{"quorum", `{"queue": {"type": "quorum"}}`, "rabbitmq3-1", false},
		{"stream", `{"queue": {"type": "stream"}}`, "", true},
		{"mirrored", `{"policy": {"ha-mode": "all", "ha-sync-mode": "automatic"}}`, "", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := harness(cluster(t, c.options), c.restart)
			h.Brief = c.brief
			drivertest.Run(t, h)
		})
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
