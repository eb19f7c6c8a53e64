package sqs

import (
	"encoding/json"
	"slices"
	"testing"

	"lockstep/pkg/drivers/drivertest"
	"lockstep/pkg/drivers/internal/labtest"
)

// ElasticMQ stands in for AWS. The visibility is short because one check waits for what a broken link left hidden; longer
// than a busy machine needs to handle a batch, or messages come again. It keeps messages in memory: a restart would prove
// nothing of SQS.
func TestConformance(t *testing.T) {
	t.Run("standard", func(t *testing.T) { drivertest.Run(t, harness(standIn(t, `{}`), nil)) })
	t.Run("fifo", func(t *testing.T) { drivertest.Run(t, harness(standIn(t, fifo), grouped)) })
}

const fifo = `{"fifo": true, "groups": 3, "waitTime": "0s"}`

// grouped is the subset for groups of messages that stay in order: each is hidden while one of its messages is.
var grouped = slices.Concat(drivertest.MessagePath(), []string{"close", "batch", "together", "handler-blocks", "cut"})

func TestConformanceLong(t *testing.T) {
	labtest.Long(t)
	drivertest.Run(t, harness(standIn(t, fifo), nil))
}

func harness(options json.RawMessage, subset []string) drivertest.Harness {
	return drivertest.Harness{
		Driver: driver{}, Options: options, Subset: subset,
		DeadOptions: json.RawMessage(`{"endpoint": "http://127.0.0.1:1", "region": "nowhere", "accessKey": "x", "secret": "x"}`),
		DeadAddress: "127.0.0.1:1",
	}
}
