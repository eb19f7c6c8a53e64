package kafka

import (
	"encoding/json"
	"testing"

	"lockstep/pkg/drivers/drivertest"
)

const (
	single  = "LOCKSTEP_KAFKA_BROKERS"
	cluster = "LOCKSTEP_KAFKA3_BROKERS"
)

func TestConformance(t *testing.T) {
	cases := []struct{ name, options, restart string }{
		{"kafka-go", `{}`, "kafka"},
		{"franz", `{"client": "franz"}`, "kafka"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { drivertest.Run(t, harness(at(t, single, c.options), c.restart)) })
	}
}

// Two of three replicas have to have a message before it is confirmed.
func TestConformanceCluster(t *testing.T) {
	for _, client := range []string{kafkaGo, franz} {
		t.Run(client, func(t *testing.T) {
			drivertest.Run(t, harness(at(t, cluster, `{"client": "`+client+`", "replicationFactor": 3, "minInSyncReplicas": 2, "partitions": 3}`), ""))
		})
	}
}

// harness restarts the broker of that name, if it is given.
func harness(options json.RawMessage, restart string) drivertest.Harness {
	h := drivertest.Harness{
		Driver:      driver{},
		Options:     options,
		DeadOptions: json.RawMessage(`{"brokers": ["127.0.0.1:1"]}`),
		DeadAddress: "127.0.0.1:1",
	}
	if restart != "" {
		h.Restart = func(t *testing.T) { disturb(t, "restart", restart) }
	}
	return h
}
