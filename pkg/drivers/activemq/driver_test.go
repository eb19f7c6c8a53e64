package activemq

import (
	"encoding/json"
	"fmt"
	"testing"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/drivertest"
)

// With Jolokia the driver is a Prober and a Sweeper, and queues are removed; without it they are emptied.
func TestConformance(t *testing.T) {
	t.Run("transient", func(t *testing.T) {
		options := single(t, fmt.Sprintf(`{"jolokia": [%q]}`, variable(t, "LOCKSTEP_ACTIVEMQ_JOLOKIA")))
		drivertest.Run(t, harness(options, "activemq"))
	})
	t.Run("durable", func(t *testing.T) {
		h := harness(single(t, `{}`), "")
		h.Driver, h.Brief = persistent{}, true
		drivertest.Run(t, h)
	})
}

func TestConformancePair(t *testing.T) {
	h := harness(pair(t, `{}`), "")
	h.Driver, h.Slow = persistent{}, true
	drivertest.Run(t, h)
}

func TestConformanceVersion5(t *testing.T) {
	options := merge(t, map[string]any{"url": variable(t, "LOCKSTEP_ACTIVEMQ5_URL")}, `{}`)
	h := harness(options, "")
	h.Driver, h.Slow = persistent{}, true
	drivertest.Run(t, h)
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

// harness restarts the broker of that name, if it is given.
func harness(options json.RawMessage, restart string) drivertest.Harness {
	h := drivertest.Harness{
		Driver:      driver{},
		Options:     options,
		DeadOptions: json.RawMessage(`{"url": "amqp://somebody:secret@127.0.0.1:1"}`),
		DeadAddress: "127.0.0.1:1",
	}
	if restart != "" {
		h.Restart = func(t *testing.T) { disturb(t, "restart", restart) }
	}
	return h
}
