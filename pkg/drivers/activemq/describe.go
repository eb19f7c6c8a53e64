package activemq

import (
	"context"
	"fmt"

	"example.org/lockstep/lockstep/pkg/drivers"
)

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
