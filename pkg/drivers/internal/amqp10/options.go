package amqp10

import (
	"errors"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// Options are the options of all brokers with AMQP 1.0. Drivers embed them in their own options.
type Options struct {
	kit.Addresses
	ConnectTimeout kit.Duration `json:"connectTimeout"` // maximum time of one attempt to connect
	IdleTimeout    kit.Duration `json:"idleTimeout"`
	Resilience     string       `json:"resilience"` // "none", or "vendor": drivers.ByGuide
	TLS            *kit.TLS     `json:"tls"`
}

// example is the form of a URL.
const example = "amqp://user:password@host:5672"

// Validate validates what a schema cannot. urls are further ones, to which tls applies. It reads no files.
func (o *Options) Validate(urls ...string) error {
	if err := o.Required(example); err != nil {
		return err
	}
	if _, err := o.endpoints(); err != nil {
		return err
	}
	return o.TLS.Check(kit.Encrypted(append(urls, o.All()...)...))
}

// endpoints parses the URLs. Their errors do not contain them, because a misplaced password could be in them.
func (o *Options) endpoints() ([]kit.Endpoint, error) {
	all, err := kit.Endpoints("url", example, map[string]kit.Scheme{"amqp": {Port: "5672"},
		"amqps": {Port: "5671", TLS: true}}, o.All()...)
	for _, e := range all {
		if e.URL.Path != "" && e.URL.Path != "/" || e.URL.RawQuery != "" {
			return nil, errors.New("url and urls of AMQP 1.0 have no path and no parameters: remove them")
		}
	}
	return all, err
}
