package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

const (
	single  = "LOCKSTEP_KAFKA_BROKERS"
	cluster = "LOCKSTEP_KAFKA3_BROKERS"
	newer   = "LOCKSTEP_KAFKA_NEXT_BROKERS"
)

// Two of three replicas must have a message before it is confirmed.
const replicated = `"replicationFactor": 3, "minInSyncReplicas": 2, "partitions": 3`

// With the default resilience, the libraries connect again and repeat requests. Its subset covers connections that
// break or end, and what repetitions could change: order, and messages without confirms that are sent while a publisher
// closes. Keys have an effect with several partitions. The subset of the newer release covers its requests.
func TestConformance(t *testing.T) {
	all := map[string]drivertest.Harness{}
	for _, client := range []string{kafkaGo, franz} {
		whole := harness(at(t, single, `{"client": "`+client+`", "resilience": "none"}`), nil)
		whole.Reject = &drivertest.Rejection{Size: 5000, Options: at(t, single,
			`{"client": "`+client+`", "resilience": "none", "topic": {"max.message.bytes": 2000}}`)}
		whole.WrongCredentials = at(t, "LOCKSTEP_KAFKA_GUARDED_BROKERS",
			`{"client": "`+client+`", "user": "lab", "password": "`+drivertest.WrongPassword+`"}`)
		all[client] = whole
		all[client+"-vendor"] = harness(at(t, single, `{"client": "`+client+`"}`), []string{"mode/confirm-window",
			"order", "close/fire-and-forget", "close/confirm-window", "publish-blocks", "session-close", "close-dead", "cut"})
		all[client+"-partitions"] = harness(at(t, single, `{"client": "`+client+`", "partitions": 3}`), []string{"keys"})
	}
	all[franz+"-newer"] = harness(at(t, newer, `{"resilience": "none"}`), slices.Concat(drivertest.MessagePath(),
		[]string{"probe", "describe", "cut"}))
	drivertest.RunAll(t, all)
}

// The subset covers the effects of several brokers and partitions: destinations of messages and of the parts of a
// batch, and connections. The other client runs in the cluster in make test-long, and in TestKafkaClusterNodeKilled.
func TestConformanceCluster(t *testing.T) {
	drivertest.Run(t, harness(at(t, cluster, `{"client": "`+franz+`", "resilience": "none", `+replicated+`}`),
		[]string{"setup", "mode/confirm-window", "mode/confirm-batch", "ack/each", "redelivery/each", "order", "fan-out",
			"queues", "keys", "nodes", "cut", "probe", "describe"}))
}

func TestConformanceLong(t *testing.T) {
	labtest.Long(t)
	all := map[string]drivertest.Harness{}
	for _, client := range []string{kafkaGo, franz} {
		all[client+"-cluster"] = harness(at(t, cluster, `{"client": "`+client+`", "resilience": "none", `+replicated+`}`), nil)
		all[client+"-vendor"] = harness(at(t, single, `{"client": "`+client+`"}`), nil)
	}
	drivertest.RunAll(t, all)
}

func harness(options json.RawMessage, subset []string) drivertest.Harness {
	return drivertest.Harness{
		Driver:  driver{},
		Options: options,
		Subset:  subset,
		// The broker reports the uncommitted messages of consumers instead.
		NoQueueDepth: true,
		Concurrent:   true,
		DeadOptions:  json.RawMessage(`{"brokers": ["127.0.0.1:1"]}`),
		DeadAddress:  "127.0.0.1:1",
		Existing:     drivertest.Declared(driver{}, grouped),
	}
}

// grouped adds a consumer group to the options. It is deleted with the topic.
func grouped(_ context.Context, of drivers.Session, t drivers.Topology, made *drivertest.Existing) error {
	s, group, remove := of.(*session), t.Name+"-group", made.Remove
	made.Queue = topicName(t, 0)
	made.Remove = func() error {
		return errors.Join(s.removeGroups(context.Background(), []string{group}), remove())
	}
	all := map[string]any{}
	err := json.Unmarshal(made.Options, &all)
	all["group"] = group
	made.Options, _ = json.Marshal(all) // parsed before
	return err
}

// A topic with another number of partitions than the options is an error, because keys would select others.
func TestPartitionsOfAnExistingTopic(t *testing.T) {
	r := setUp(t, at(t, single, `{"partitions": 3}`))
	existing := r.topology
	existing.Existing = topicName(r.topology, 0)
	s := labtest.Open(t, driver{}, at(t, single, `{"partitions": 2}`), labtest.Env(nil)).(*session)
	if err := r.session.Verify(t.Context(), existing); err != nil {
		t.Error(err)
	}
	if err := s.Verify(t.Context(), existing); err == nil || !strings.Contains(err.Error(), existing.Existing+": it has 3 partitions") {
		t.Errorf("3 partitions instead of 2: %v", err)
	}
}

func TestTLS(t *testing.T) {
	all := map[string]drivertest.Harness{}
	for _, client := range []string{kafkaGo, franz} {
		all[client] = drivertest.Harness{Driver: driver{}, Subset: []string{"tls"}, NoQueueDepth: true, Concurrent: true,
			TLS: &drivertest.TLS{
				Options:      at(t, "LOCKSTEP_KAFKA_TLS_BROKERS", `{"client": "`+client+`"}`),
				Certificates: drivertest.Certificates(lab.Variable(t, "LOCKSTEP_KAFKA_TLS_FILES")),
			}}
	}
	drivertest.RunAll(t, all)
}
