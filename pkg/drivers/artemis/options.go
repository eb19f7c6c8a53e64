package artemis

import (
	"bytes"
	"encoding/json"
	"fmt"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/amqp10"
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

// parseOptions parses options and checks them. An unknown field is an error. It sets the schema's defaults for callers
// that bypass the schema.
func parseOptions(raw json.RawMessage) (options, error) {
	o := options{HA: independent, Routing: auto}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf("read artemis options: %w", err)
	}
	if err := o.Check(); err != nil {
		return o, fmt.Errorf("read artemis options: %w", err)
	}
	return o, nil
}

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
