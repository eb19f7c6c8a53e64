// Package artemis drives Apache Artemis by AMQP 1.0. It declares, monitors and removes queues through the broker's
// management address, which also uses AMQP. So it needs neither the console nor a second port.
package artemis

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/amqp10"
	"lockstep/pkg/drivers/internal/legacy"
	"lockstep/pkg/drivers/kit"
)

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that an unreachable broker is reported immediately.
func (d driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	return legacy.Wrap(d.open(ctx, raw, env))
}

func (driver) open(ctx context.Context, raw json.RawMessage, env drivers.Env) (legacy.Session, error) {
	o, err := kit.Decode[options]("artemis", raw)
	if err != nil {
		return nil, err
	}
	core, err := amqp10.Open(ctx, "Artemis", o.Options, env)
	if err != nil {
		return nil, err
	}
	return &session{Session: core, options: o}, nil
}

// session is one agent's use of a broker during one task.
type session struct {
	*amqp10.Session
	options options
	task    atomic.Pointer[drivers.Topology] // topology that was used last, for Probe
	grown   kit.Rates
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Cleaner
} = (*session)(nil)

// Publisher connects a publisher to the address of its queue.
func (s *session) Publisher(ctx context.Context, spec legacy.PublisherSpec) (legacy.Publisher, error) {
	s.task.Store(&spec.Topology)
	return s.Session.Publisher(ctx, spec, amqp10.Terminus{
		Address: address(spec.Topology, spec.Queue), Capabilities: s.options.capabilities(spec.Topology),
	})
}

// Consumer connects a consumer to the queue of its subscription. The name contains both the address and the queue, so
// that attaching creates nothing.
func (s *session) Consumer(ctx context.Context, spec legacy.ConsumerSpec, handle legacy.Handler) (legacy.Consumer,
	error) {
	s.task.Store(&spec.Topology)
	from := address(spec.Topology, spec.Queue) + "::" + s.options.queue(spec.Topology, spec.Subscription, spec.Queue)
	return s.Session.Consumer(ctx, spec, amqp10.Terminus{Address: from,
		Capabilities: s.options.capabilities(spec.Topology)}, handle)
}
