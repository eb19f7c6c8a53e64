// Package activemq drives ActiveMQ Classic by AMQP 1.0. Queues are created by using them, and emptied by AMQP. Only the
// broker's Jolokia API, which is HTTP, can remove them.
package activemq

import (
	"context"
	"encoding/json"
	"fmt"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/amqp10"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that an unreachable broker is reported immediately. A
// session with the option jolokia is also a Prober and a Cleaner.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := kit.Decode[options]("activemq", raw)
	if err != nil {
		return nil, err
	}
	secure, err := o.TLS.Config(env.Access)
	if err != nil {
		return nil, fmt.Errorf("read activemq options: %w", err)
	}
	core, err := amqp10.Open(ctx, "ActiveMQ", o.Options, amqp10.Addresses{Target: target, Source: source}, env)
	if err != nil {
		return nil, err
	}
	s := &session{Session: core, options: o}
	if len(o.Jolokia) == 0 {
		return s, nil
	}
	servers, err := o.servers()
	if err != nil {
		_ = core.Close()
		return nil, err
	}
	return &managedSession{session: s, jolokia: &jolokia{servers: servers,
		client: kit.HTTP(env.ManagementDialer(), secure)}}, nil
}

// session is one agent's use of a broker during one task.
type session struct {
	*amqp10.Session
	options options
}

// Describe reports the properties that the broker sends when an AMQP connection opens.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	greeting, err := s.Properties(ctx)
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe ActiveMQ: %w", err)
	}
	d := drivers.Description{Settings: map[string]string{"ha": s.options.HA}}
	d.Product, _ = greeting["product"].(string)
	d.Version, _ = greeting["version"].(string)
	if platform, ok := greeting["platform"].(string); ok {
		d.Settings["platform"] = platform
	}
	return d, nil
}
