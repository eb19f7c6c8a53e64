package sqs

import (
	"encoding/json"
	"testing"

	"lockstep/pkg/drivers/drivertest"
)

// ElasticMQ stands in for AWS. The visibility is short because the suite waits for what a broken link left hidden; longer than any of its
// handlers blocks. It keeps messages in memory: a restart would prove nothing of SQS.
func TestConformance(t *testing.T) {
	cases := []struct{ name, options string }{
		{"standard", `{}`},
		{"fifo", `{"fifo": true, "groups": 3, "waitTime": "0s"}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { drivertest.Run(t, harness(standIn(t, c.options))) })
	}
}

func harness(options json.RawMessage) drivertest.Harness {
	return drivertest.Harness{
		Driver: driver{}, Options: options,
		DeadOptions: json.RawMessage(`{"endpoint": "http://127.0.0.1:1", "region": "nowhere", "accessKey": "x", "secret": "x"}`),
		DeadAddress: "127.0.0.1:1",
	}
}
