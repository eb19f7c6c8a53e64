package sqs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"lockstep/pkg/drivers/kit"
	"lockstep/pkg/drivers/requests"
)

type options struct {
	Endpoint       string   `json:"endpoint"`
	TLS            *kit.TLS `json:"tls"`
	Region         string   `json:"region"`
	AccessKey      string   `json:"accessKey"`
	Secret         string   `json:"secret"`
	SessionToken   string   `json:"sessionToken"`
	FIFO           bool     `json:"fifo"`
	Groups         int      `json:"groups"`
	SendBatch      int      `json:"sendBatch"`
	Requests       *int     `json:"requests"`  // nil: enough for the messages in flight
	Receivers      *int     `json:"receivers"` // nil: enough for the prefetch
	Deleters       *int     `json:"deleters"`  // nil: enough for the prefetch
	HighThroughput bool     `json:"highThroughput"`
	WaitTime       string   `json:"waitTime"`
	PollInterval   string   `json:"pollInterval"`
	Visibility     string   `json:"visibility"`
	ConfirmTimeout string   `json:"confirmTimeout"`
	Resilience     string   `json:"resilience"`
	times          parsedTimes
}

type parsedTimes struct{ wait, poll, visibility, confirm time.Duration }

// maxPerRequest is the maximum number of messages that one request sends, receives or deletes. It is a limit of SQS.
const maxPerRequest = 10

// parseOptions parses options and checks them. An unknown field is an error. It sets the schema's defaults for callers
// that bypass the schema.
func parseOptions(raw json.RawMessage) (options, error) {
	o := options{Groups: 1, SendBatch: maxPerRequest, HighThroughput: true, WaitTime: "1s", PollInterval: "10ms",
		Visibility: "30s", ConfirmTimeout: "30s"}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf("read sqs options: %w", err)
	}
	if d.More() {
		return o, errors.New("read sqs options: there is something behind them")
	}
	if err := o.check(); err != nil {
		return o, fmt.Errorf("read sqs options: %w", err)
	}
	return o, nil
}

// check parses the durations. It checks what the schema cannot, and also what it can, for callers that bypass it.
func (o *options) check() error {
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
			return errors.New(`endpoint is not of the form "http://host:port"; credentials are accessKey and secret`)
		}
	}
	if err := o.TLS.Check(!strings.HasPrefix(o.Endpoint, "http:")); err != nil {
		return err
	}
	switch {
	case (o.AccessKey == "") != (o.Secret == ""):
		return errors.New("accessKey and secret go together")
	case o.SessionToken != "" && o.Secret == "":
		return errors.New("sessionToken goes with accessKey and secret")
	case o.AccessKey != "" && o.Region == "":
		return errors.New("accessKey and secret need a region")
	case o.Groups < 1 || min(orOne(o.Requests), orOne(o.Receivers), orOne(o.Deleters)) < 1:
		return errors.New("groups, requests, receivers and deleters: 1 or more")
	case o.Groups > 1 && !o.FIFO:
		return errors.New("groups are of FIFO queues: give fifo: true")
	case o.SendBatch < 1 || o.SendBatch > maxPerRequest:
		return fmt.Errorf("sendBatch %d: 1 to %d", o.SendBatch, maxPerRequest)
	}
	for _, d := range []struct {
		name, text  string
		into        *time.Duration
		least, most time.Duration
		whole       time.Duration
	}{
		{"waitTime", o.WaitTime, &o.times.wait, 0, 20 * time.Second, time.Second},
		{"pollInterval", o.PollInterval, &o.times.poll, time.Millisecond, time.Hour, 1},
		{"visibility", o.Visibility, &o.times.visibility, time.Second, 12 * time.Hour, time.Second},
		{"confirmTimeout", o.ConfirmTimeout, &o.times.confirm, time.Millisecond, 24 * time.Hour, 1},
	} {
		var err error
		if *d.into, err = time.ParseDuration(d.text); err != nil || *d.into < d.least || *d.into > d.most ||
			*d.into%d.whole != 0 {
			return fmt.Errorf("%s %q: from %v to %v, in steps of %v", d.name, d.text, d.least, d.most, d.whole)
		}
	}
	return nil
}

func orOne(n *int) int {
	if n == nil {
		return 1
	}
	return *n
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

// address returns the address of the endpoint for messages. Without an endpoint it contains the region.
func (o *options) address() string {
	u, err := url.Parse(o.Endpoint)
	switch {
	case o.Endpoint == "" || err != nil:
		return "sqs." + o.Region
	case u.Port() != "":
		return u.Host
	case u.Scheme == "https":
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), "80")
}
