package sqs

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

//go:embed schema.cue
var schema string

func (driver) Info() drivers.Info {
	return drivers.Info{
		Name:   "sqs",
		Doc:    "Amazon SQS, and servers with its protocol: standard and FIFO queues, long polling, batches of up to ten.",
		Schema: schema + kit.Schema,
		Example: `endpoint: "http://127.0.0.1:9324" // a compatible server; default: the service of AWS
region:   "eu-west-1"
accessKey: "x"
secret: "xxxx"`,
		Metrics: drivers.SharedMetrics(drivers.MetricQueues, drivers.MetricQueueDepth, drivers.MetricUnacked),
		Declare: declare,
	}
}

func declare(raw json.RawMessage, use drivers.Use) drivers.Declaration {
	o, err := kit.Decode[options]("sqs", raw)
	if err != nil {
		return drivers.Declaration{Rejections: []string{err.Error()}}
	}
	return drivers.Declaration{
		Capabilities: drivers.Capabilities{
			Modes:             modes(),
			Acks:              acks(&o),
			Persistent:        true,
			Transient:         true,
			UnlimitedPrefetch: true,
			Keys:              o.FIFO, // they are message groups
			Redelivery:        true,
			Existing:          true,
			Streams:           o.FIFO,
		},
		Guarantees: drivers.Guarantees{
			ConfirmedKept: true,
			SentKept:      false,
			// A message that is not deleted within the visibility time is delivered again. Standard queues deliver at
			// least once anyway.
			NoDuplicates: false,
			Ordered:      o.FIFO && (use.Mode != drivers.ConfirmWindow || o.concurrent(o.Requests, 0, 1) == 1),
		},
		RedeliverAfter: o.Visibility.Std(),

		Notes:      notes(&o, use),
		Resilience: drivers.Vendor(o.Resilience, drivers.ByLibrary),
		Label:      label(&o),
	}
}

// modes returns the confirmed modes, because SQS answers every request.
func modes() []drivers.Mode {
	var some []drivers.Mode
	for _, m := range drivers.Modes() {
		if m.Confirmed() {
			some = append(some, m)
		}
	}
	return some
}

// acks leaves out late acknowledgements for FIFO queues: they deliver no more messages of a group until the received
// ones are deleted.
func acks(o *options) []drivers.Ack {
	if o.FIFO {
		return []drivers.Ack{drivers.AckEach}
	}
	return []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval}
}

func notes(o *options, use drivers.Use) []string {
	each := use.Consumers / max(1, use.Queues)
	if o.FIFO && each > o.Groups {
		return []string{fmt.Sprintf("%d consumers share %d message groups of each queue: the other consumers are idle while these are received", each, o.Groups)}
	}
	return nil
}

// label describes what a confirm means. Describe reports what is known about a server other than AWS.
func label(o *options) string {
	kind := "standard"
	switch {
	case o.FIFO && o.HighThroughput:
		kind = "FIFO with high throughput"
	case o.FIFO:
		kind = "FIFO"
	}
	if o.Endpoint != "" {
		return kind + ", confirm: taken by the server at the endpoint, stored as that is set"
	}
	return kind + ", confirm: stored redundantly by AWS"
}
