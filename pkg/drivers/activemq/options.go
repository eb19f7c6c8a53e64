package activemq

import (
	"bytes"
	"encoding/json"
	"fmt"

	"lockstep/pkg/drivers/internal/amqp10"
)

// Relations between the brokers of several urls.
const (
	independent = "none"
	sharedStore = "shared-store"
)

type options struct {
	amqp10.Options
	HA      string   `json:"ha"`
	Jolokia []string `json:"jolokia"`
}

// parseOptions parses options and checks them. An unknown field is an error. It sets the schema's defaults for callers
// that bypass the schema.
func parseOptions(raw json.RawMessage) (options, error) {
	o := options{HA: independent}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf("read activemq options: %w", err)
	}
	if err := o.Check(o.Jolokia...); err != nil {
		return o, fmt.Errorf("read activemq options: %w", err)
	}
	if _, err := parseJolokia(o.Jolokia); err != nil {
		return o, fmt.Errorf("read activemq options: %w", err)
	}
	return o, nil
}
