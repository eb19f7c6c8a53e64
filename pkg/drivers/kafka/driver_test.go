package kafka

import (
	"encoding/json"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

const (
	single  = "LOCKSTEP_KAFKA_BROKERS"
	cluster = "LOCKSTEP_KAFKA3_BROKERS"
)

// Two of three replicas must have a message before it is confirmed.
const replicated = `"replicationFactor": 3, "minInSyncReplicas": 2, "partitions": 3`

func TestConformance(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		drivertest.Run(t, harness(at(t, single, `{"client": "`+client+`", "resilience": "none"}`), nil))
	})
}

// With the default resilience, the libraries connect again.
func TestConformanceVendor(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		drivertest.Run(t, harness(at(t, single, `{"client": "`+client+`"}`),
			[]string{"open/dead", "dial", "mode", "close", "order", "publish-blocks", "session-close", "cut"}))
	})
}

// The subset covers the effects of several brokers and partitions: destinations of messages, and connections. The other
// client runs in the cluster in make test-long, and in TestKafkaClusterNodeKilled.
func TestConformanceCluster(t *testing.T) {
	drivertest.Run(t, harness(at(t, cluster, `{"client": "`+franz+`", "resilience": "none", `+replicated+`}`),
		[]string{"setup", "mode", "ack/each", "redelivery/each", "order", "fan-out", "queues", "cut", "probe",
			"describe"}))
}

func TestConformanceLong(t *testing.T) {
	labtest.Long(t)
	both(t, func(t *testing.T, client string) {
		drivertest.Run(t, harness(at(t, cluster, `{"client": "`+client+`", "resilience": "none", `+replicated+`}`), nil))
	})
}

func harness(options json.RawMessage, subset []string) drivertest.Harness {
	return drivertest.Harness{
		Driver:  driver{},
		Options: options,
		Subset:  subset,
		// The broker reports the uncommitted messages of consumers instead.
		NoQueueDepth: true,
		DeadOptions:  json.RawMessage(`{"brokers": ["127.0.0.1:1"]}`),
		DeadAddress:  "127.0.0.1:1",
	}
}

func TestTLS(t *testing.T) {
	both(t, func(t *testing.T, client string) {
		drivertest.Run(t, drivertest.Harness{Driver: driver{}, Subset: []string{"tls"}, NoQueueDepth: true,
			TLS: &drivertest.TLS{
				Options:      at(t, "LOCKSTEP_KAFKA_TLS_BROKERS", `{"client": "`+client+`"}`),
				Certificates: drivertest.Certificates(lab.Variable(t, "LOCKSTEP_KAFKA_TLS_FILES")),
			}})
	})
}
