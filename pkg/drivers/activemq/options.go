package activemq

import (
	"example.org/lockstep/lockstep/pkg/drivers/internal/amqp10"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
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

// Check validates what the schema cannot.
func (o *options) Check() error {
	if _, err := o.servers(); err != nil {
		return err
	}
	return o.Validate(o.Jolokia...)
}

// servers parses the URLs of Jolokia.
func (o *options) servers() ([]kit.Endpoint, error) {
	return kit.Endpoints("jolokia url", "http://user:password@host:8161/api/jolokia", kit.Web, o.Jolokia...)
}
