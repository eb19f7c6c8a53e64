package artemis

import (
	"encoding/json"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

func TestConformance(t *testing.T) {
	t.Run("transient", func(t *testing.T) { drivertest.Run(t, harness(driver{}, single(t, `{}`), nil)) })
	t.Run("durable", func(t *testing.T) {
		drivertest.Run(t, harness(persistent{}, single(t, `{}`), drivertest.MessagePath()))
	})
	t.Run("multicast", func(t *testing.T) {
		drivertest.Run(t, harness(driver{}, single(t, `{"routing": "multicast"}`), drivertest.MessagePath()))
	})
}

// The subset covers the effects of a primary with a backup: connections, and confirms that wait for the replica.
func TestConformancePair(t *testing.T) {
	drivertest.Run(t, harness(persistent{}, pair(t, `{}`),
		[]string{"open", "dial", "describe", "probe", "setup", "mode", "close", "cut"}))
}

func TestConformanceLong(t *testing.T) {
	labtest.Long(t)
	h := harness(persistent{}, pair(t, `{}`), nil)
	h.Slow = true
	drivertest.Run(t, h)
}

// persistent is the driver for persistent messages only, which has the strongest guarantees.
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

func harness(d drivers.Driver, options json.RawMessage, subset []string) drivertest.Harness {
	return drivertest.Harness{
		Driver:      d,
		Options:     options,
		Subset:      subset,
		DeadOptions: json.RawMessage(`{"url": "amqp://somebody:secret@127.0.0.1:1"}`),
		DeadAddress: "127.0.0.1:1",
	}
}

func TestTLS(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Driver: driver{}, Subset: []string{"tls"}, TLS: &drivertest.TLS{
		Options:      labtest.Options(t, map[string]any{"url": lab.Variable(t, "LOCKSTEP_ARTEMIS_TLS_URL")}, `{}`),
		Certificates: drivertest.Certificates(lab.Variable(t, "LOCKSTEP_ARTEMIS_TLS_FILES")),
	}})
}
