package artemis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

func TestConformance(t *testing.T) {
	t.Run("transient", func(t *testing.T) {
		h := harness(driver{}, single(t, `{}`), nil)
		h.Reject = &drivertest.Rejection{Limit: fullAddress(t)}
		h.WrongCredentials = single(t, fmt.Sprintf(`{"url": %q}`,
			strings.Replace(lab.Variable(t, "LOCKSTEP_ARTEMIS_URL"), "://", "://lab:"+drivertest.WrongPassword+"@", 1)))
		drivertest.Run(t, h)
	})
	t.Run("durable", func(t *testing.T) {
		drivertest.Run(t, harness(persistent{}, single(t, `{"resilience": "none"}`),
			append(drivertest.MessagePath(), "cut")))
	})
	t.Run("multicast", func(t *testing.T) {
		drivertest.Run(t, harness(driver{}, single(t, `{"routing": "multicast"}`), drivertest.MessagePath()))
	})
}

// fullAddress returns a function that makes the addresses of a topology reject messages while they are full.
func fullAddress(t testing.TB) func(context.Context, drivers.Topology) (undo func(), err error) {
	options := schematest.Fill(t, driver{}, single(t, `{}`))
	return func(ctx context.Context, top drivers.Topology) (func(), error) {
		opened, err := driver{}.Open(ctx, options, labtest.Env(nil))
		if err != nil {
			return nil, err
		}
		s := opened.(*session)
		if err := s.read(ctx, operation("broker", "addAddressSettings", top.Name+".#",
			`{"addressFullMessagePolicy": "FAIL", "maxSizeBytes": 20000, "pageSizeBytes": 10000}`), new(any)); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return func() {
			answers, err := s.manage(labtest.Context(t), operation("broker", "removeAddressSettings", top.Name+".#"))
			if err != nil || !answers[0].ok {
				t.Errorf("remove the settings: %v %v", answers, err)
			}
			_ = s.Close()
		}, nil
	}
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
		Existing: drivertest.Declared(driver{}, func(_ context.Context, _ drivers.Session, t drivers.Topology,
			made *drivertest.Existing) error {
			made.Queue = address(t, 0)
			return nil
		}),
	}
}

func TestTLS(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Driver: driver{}, Subset: []string{"tls"}, TLS: &drivertest.TLS{
		Options:      labtest.Options(t, map[string]any{"url": lab.Variable(t, "LOCKSTEP_ARTEMIS_TLS_URL")}, `{}`),
		Certificates: drivertest.Certificates(lab.Variable(t, "LOCKSTEP_ARTEMIS_TLS_FILES")),
	}})
}
