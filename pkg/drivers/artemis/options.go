package artemis

import (
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/amqp10"
)

// Routing types of addresses.
const (
	auto      = "auto"
	anycast   = "anycast"
	multicast = "multicast"
)

// Relations between the brokers of several urls.
const (
	independent = "none"
	replication = "replication"
	sharedStore = "shared-store"
)

type options struct {
	amqp10.Options
	HA      string `json:"ha"`
	Routing string `json:"routing"`
}

// Check validates what the schema cannot.
func (o *options) Check() error { return o.Validate() }

// multicast reports whether the addresses of a task deliver every message to all of their queues.
func (o *options) multicast(subscriptions int) bool {
	return o.Routing == multicast || (o.Routing == auto && subscriptions > 1)
}

// capabilities returns the AMQP capabilities that select the routing type.
func (o *options) capabilities(t drivers.Topology) []string {
	if o.multicast(t.Subscriptions) {
		return []string{"topic"}
	}
	return []string{"queue"}
}
