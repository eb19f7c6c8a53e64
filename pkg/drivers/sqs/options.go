package sqs

import (
	"errors"
	"fmt"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

type options struct {
	Endpoint       string       `json:"endpoint"`
	TLS            *kit.TLS     `json:"tls"`
	Region         string       `json:"region"`
	AccessKey      string       `json:"accessKey"`
	Secret         string       `json:"secret"`
	SessionToken   string       `json:"sessionToken"`
	FIFO           bool         `json:"fifo"`
	Groups         int          `json:"groups"`
	SendBatch      int          `json:"sendBatch"`
	Requests       *int         `json:"requests"`  // nil: enough for the messages in flight
	Receivers      *int         `json:"receivers"` // nil: enough for the prefetch
	Deleters       *int         `json:"deleters"`  // nil: enough for the prefetch
	HighThroughput bool         `json:"highThroughput"`
	WaitTime       kit.Duration `json:"waitTime"`
	PollInterval   kit.Duration `json:"pollInterval"`
	Visibility     kit.Duration `json:"visibility"`
	ConfirmTimeout kit.Duration `json:"confirmTimeout"`
	Resilience     string       `json:"resilience"`
}

// maxPerRequest is the maximum number of messages that one request sends, receives or deletes. It is a limit of SQS.
const maxPerRequest = 10

// maxDeleters is the maximum of the option deleters.
const maxDeleters = 1000

// Check validates what the schema cannot.
func (o *options) Check() error {
	if o.Endpoint != "" {
		if all, err := o.endpoint(); err != nil || all[0].URL.User != nil {
			return errors.New(`endpoint is not of the form "http://host:port"; credentials are accessKey and secret`)
		}
	}
	switch {
	case (o.AccessKey == "") != (o.Secret == ""):
		return errors.New("accessKey and secret go together")
	case o.SessionToken != "" && o.Secret == "":
		return errors.New("sessionToken goes with accessKey and secret")
	case o.AccessKey != "" && o.Region == "":
		return errors.New("accessKey and secret need a region")
	case o.Groups > 1 && !o.FIFO:
		return errors.New("groups are of FIFO queues: give fifo: true")
	case o.Visibility.Std() > 12*time.Hour:
		return fmt.Errorf("visibility %s: at most 12h", o.Visibility)
	}
	return o.TLS.Check(o.Endpoint == "" || kit.Encrypted(o.Endpoint))
}

// concurrent returns the number of concurrent requests for limit messages in flight, with 0 for no limit. given is the
// value of the option. The default for FIFO queues is 1, because requests may overtake each other.
func (o *options) concurrent(given *int, limit, perRequest int) int {
	switch {
	case given != nil:
		return *given
	case o.FIFO:
		return 1
	}
	return requests.Concurrent(limit, perRequest)
}

// deleters returns the number of concurrent requests that answer up to perRequest messages each.
func (o *options) deleters(prefetch, perRequest int) int {
	if o.Deleters != nil {
		return *o.Deleters
	}
	return min(maxDeleters, requests.Concurrent(prefetch, perRequest))
}

// endpoint parses the endpoint.
func (o *options) endpoint() ([]kit.Endpoint, error) {
	return kit.Endpoints("endpoint", "http://host:port", kit.Web, o.Endpoint)
}

// address returns the address of the endpoint for messages. Without an endpoint it contains the region.
func (o *options) address() string {
	all, err := o.endpoint()
	if err != nil {
		return "sqs." + o.Region
	}
	return all[0].Address
}
