// Package artemis drives Apache Artemis by AMQP 1.0. It declares, monitors and removes queues through the broker's
// management address, which also uses AMQP. So it needs neither the console nor a second port.
package artemis

import (
	"context"
	"encoding/json"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/amqp10"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that an unreachable broker is reported immediately.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := kit.Decode[options]("artemis", raw)
	if err != nil {
		return nil, err
	}
	core, err := amqp10.Open(ctx, "Artemis", o.Options, amqp10.Addresses{Target: o.target, Source: o.source}, env)
	if err != nil {
		return nil, err
	}
	return &session{Session: core, options: o}, nil
}

// session is one agent's use of a broker during one task.
type session struct {
	*amqp10.Session
	options options
	grown   kit.Rates
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Cleaner
	drivers.Verifier
} = (*session)(nil)
