package activemq

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// With Jolokia, the driver implements Prober and Cleaner, and removes queues. Without it, it empties them.
func TestConformance(t *testing.T) {
	t.Run("transient", func(t *testing.T) {
		h := harness(driver{}, managed(t), nil)
		h.WrongCredentials = single(t, fmt.Sprintf(`{"url": %q}`,
			strings.Replace(lab.Variable(t, "LOCKSTEP_ACTIVEMQ_URL"), "://", "://lab:"+drivertest.WrongPassword+"@", 1)))
		drivertest.Run(t, h)
	})
	t.Run("durable", func(t *testing.T) {
		drivertest.Run(t, harness(persistent{}, single(t, `{"resilience": "none"}`),
			append(drivertest.MessagePath(), "cut")))
	})
}

// The subset covers the effect of a list of brokers: connections.
func TestConformancePair(t *testing.T) {
	drivertest.Run(t, harness(persistent{}, pair(t, `{}`),
		[]string{"open", "dial", "describe", "setup", "teardown", "mode", "close", "cut"}))
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
			made.Queue = queue(t, 0, 0)
			return nil
		}),
	}
}

// TestTLS reaches the broker and its Jolokia through proxies, because the lab's broker has no TLS.
func TestTLS(t *testing.T) {
	files := drivertest.NewCertificates(t)
	proxied := func(variable string) *url.URL {
		u, err := url.Parse(lab.Variable(t, variable))
		if err != nil {
			t.Fatal(err)
		}
		u.Scheme, u.Host = u.Scheme+"s", drivertest.TLSProxy(t, files, u.Host)
		return u
	}
	drivertest.Run(t, drivertest.Harness{Driver: driver{}, Subset: []string{"tls"}, TLS: &drivertest.TLS{
		Options: labtest.Options(t, map[string]any{"url": proxied("LOCKSTEP_ACTIVEMQ_URL").String(),
			"jolokia": []string{proxied("LOCKSTEP_ACTIVEMQ_JOLOKIA").String()}}, `{}`),
		Certificates: files,
	}})
}
