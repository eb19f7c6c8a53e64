package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	_ "lockstep/pkg/drivers/kafka"
)

// The broker that leads every partition dies, and the others take over with their copies: nothing that all in-sync replicas had is lost.
func TestKafkaClusterNodeKilled(t *testing.T) {
	brokers, err := json.Marshal(strings.Split(variable(t, "LOCKSTEP_KAFKA3_BROKERS"), ","))
	if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	for _, client := range []string{"kafka-go", "franz"} { // one after the other: it takes two brokers of three to go on
		t.Run(client, func(t *testing.T) {
			options := fmt.Sprintf(`{"brokers": %s, "client": %q, "partitions": 3, "replicationFactor": 3, "minInSyncReplicas": 2, "confirmTimeout": "5s"}`, brokers, client)
			o := survivor(t, fault{driver: "kafka", options: options, cell: "topology: queueNode: 2", process: "kafka3-3", clean: swept(t, "kafka", options)})
			if o.Ledger.LostConfirmed > 0 {
				t.Errorf("%d messages that two replicas had are lost", o.Ledger.LostConfirmed)
			}
			if n := o.Values["reconnects"].Number; n < 2 {
				t.Errorf("%v reconnects of a publisher and a consumer", n)
			}
		})
	}
}
