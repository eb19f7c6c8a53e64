// Package loopback is a broker in the memory of the process. It is the reference driver, the fake broker of the tests,
// and the lower bound for every metric. It keeps all guarantees unless its options configure faults. The number of
// faults is exact. Faults are part of the queue and not a decorator of any driver, because most of them concern the
// broker's own state: when a message is stored, which positions change places, which period stalls.
package loopback

import (
	"context"
	_ "embed" // for schema.cue
	"encoding/json"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

//go:embed schema.cue
var schema string

func init() { drivers.Register(Driver{}) }

// Driver is the loopback driver. It makes no connections: Env.Dial is never called.
type Driver struct{}

// Info describes the driver.
func (Driver) Info() drivers.Info {
	return drivers.Info{
		Name:   "loopback",
		Doc:    "A broker in the memory of the agent, without a network: it shows the limits of the load generator, and can lose messages. All agents of a cell must be in one process.",
		Schema: schema,
		Metrics: drivers.SharedMetrics(
			drivers.MetricConsumers, drivers.MetricQueues, drivers.MetricQueueDepth, drivers.MetricUnacked),
		Declare: declare,
	}
}

// declare declares all guarantees, even with faulty options: such options test that a broken guarantee is detected.
// Ordered is the exception, because messages with different delays overtake each other.
func declare(raw json.RawMessage, use drivers.Use) drivers.Declaration {
	o, err := kit.Decode[options]("loopback", raw)
	if err != nil {
		return drivers.Declaration{Rejections: []string{err.Error()}}
	}
	d := drivers.Declaration{
		Capabilities: drivers.Capabilities{
			Modes: drivers.Modes(),
			Acks: []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval,
				drivers.AckAutomatic},
			Mandatory:         true,
			Persistent:        true, // accepted as an option: the broker cannot restart without its process
			Transient:         true,
			UnlimitedPrefetch: true,
			Subscriptions:     true,
			Bindings:          true,
			Churn:             true,
			Redelivery:        true,
			Existing:          true,
			InProcess:         true,
			CopiesBody:        true, // into the queue
		},
		Guarantees: drivers.Guarantees{ConfirmedKept: true, SentKept: true, NoDuplicates: true,
			Ordered: o.Delay.fixed()},
		Resilience: drivers.Vendor(o.Resilience, drivers.ByGuide),
	}
	if use.Simulated {
		d.Rejections = append(d.Rejections,
			"loopback has no network for latency or faults; use its options delay and confirmDelay")
	}
	d.Label = o.label()
	return d
}

// Open joins the broker that the options name.
func (Driver) Open(ctx context.Context, raw json.RawMessage, _ drivers.Env) (drivers.Session, error) {
	o, err := kit.Decode[options]("loopback", raw)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &session{broker: join(o.Name), options: o}, nil
}
