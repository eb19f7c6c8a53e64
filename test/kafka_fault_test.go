package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	records "example.org/lockstep/lockstep/internal/record"
	_ "example.org/lockstep/lockstep/pkg/drivers/kafka"
	"example.org/lockstep/lockstep/test/lab/labtest"
)

// The broker that leads every partition is killed, and the others become leaders with their replicas. No message that
// all in-sync replicas had is lost.
func TestKafkaClusterNodeKilled(t *testing.T) {
	t.Parallel()
	own := labtest.Own(t, "kafka3")
	brokers, err := json.Marshal(strings.Split(own.Variable("LOCKSTEP_KAFKA3_BROKERS"), ","))
	if err != nil {
		t.Fatal(err)
	}
	third := own.Process(3)
	// one after the other: each needs two of three brokers
	for _, c := range []struct {
		client  string
		exposed bool
	}{{"kafka-go", true}, {"franz-go", false}, {"kafka-go", false}} {
		client := c.client
		t.Run(fmt.Sprintf("%s exposed %t", client, c.exposed), func(t *testing.T) {
			options := fmt.Sprintf(`{"brokers": %s, "client": %q, "partitions": 3, "replicationFactor": 3, "minInSyncReplicas": 2, "confirmTimeout": "5s"}`, brokers, client)
			o := runWithKill(t, fault{driver: "kafka", options: options, exposed: c.exposed,
				cell: "topology: queueNode: 2", process: third, clean: leftoverCheck(t, "kafka", options)})
			if o.Ledger.LostConfirmed > 0 {
				t.Errorf("lost messages that two replicas had: got %d, want 0", o.Ledger.LostConfirmed)
			}
			if !c.exposed {
				if !slices.ContainsFunc(o.Events, func(e plan.Event) bool { return strings.Contains(e.Detail, "connects again") }) {
					t.Errorf("events: got %+v, want one about a reconnect after the kill of the leader", o.Events)
				}
				return
			}
			again := reconnected(o)
			t.Logf("reconnects by role: %v", again)
			if n := o.Values["reconnects"].Number; float64(again["publisher"]+again["consumer"]) != n {
				t.Errorf("reconnects: got %v, want the sum of the gap events, %v", n, again)
			}
			if again["publisher"] == 0 { // it always waits for confirms of the leader
				t.Error("reconnects of publishers after the kill of the leader: got 0, want at least 1")
			}
			if again["consumer"] == 0 { // kafka-go's reader is bound to its connection
				t.Error("reconnects of consumers after the kill of the leader: got 0, want at least 1")
			}
		})
	}
}

// reconnected returns the number of connections that were lost and opened again, by role: "publisher" or "consumer".
func reconnected(o plan.Outcome) map[string]int {
	again := map[string]int{}
	for _, e := range o.Events {
		if role, _, _ := strings.Cut(e.Detail, " "); e.Kind == records.EventGap &&
			!strings.Contains(e.Detail, "not reconnected") {
			again[role]++
		}
	}
	return again
}
