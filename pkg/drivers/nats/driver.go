// Package nats drives NATS JetStream through the library nats.go. It adds next to nothing to the bare cost of that library
// for each message, never sends anything twice, and never reconnects by itself.
package nats

import (
	"context"
	"encoding/json"
	"fmt"

	"lockstep/pkg/drivers"
)

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that a broker which is not there is known at once.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	if _, err := parseOptions(raw); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("open nats: not built yet: %w", drivers.ErrUnsupported)
}
