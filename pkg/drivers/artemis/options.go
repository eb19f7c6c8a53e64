package artemis

import (
	"bytes"
	"encoding/json"
	"fmt"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/amqp10"
)

// How an address hands messages to its queues.
const (
	auto      = "auto"
	anycast   = "anycast"
	multicast = "multicast"
)

// What stands behind several urls.
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

// parseOptions reads options; unknown fields are errors. It fills the schema's defaults in for callers without a
// schema.
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

// multicast reports whether the addresses of a task hand every message to all of their queues.
func (o *options) multicast(subscriptions int) bool {
	return o.Routing == multicast || (o.Routing == auto && subscriptions > 1)
}

// capabilities are AMQP's word for the routing.
func (o *options) capabilities(t drivers.Topology) []string {
	if o.multicast(t.Subscriptions) {
		return []string{"topic"}
	}
	return []string{"queue"}
}
