package test

import (
	"encoding/json"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/test/lab/labtest"
)

// The NATS server of three that publisher and consumer are connected to is killed. They continue on another one. No
// message that a majority stored is lost.
func TestNATSClusterNodeKilled(t *testing.T) {
	t.Parallel()
	own := labtest.Own(t, "nats3")
	urls := strings.Split(own.Variable("LOCKSTEP_NATS3_URLS"), ",")
	list, err := json.Marshal(append(urls[2:], urls[:2]...)) // the third is first: the first connection of each role goes there
	if err != nil {
		t.Fatal(err)
	}
	o := survivor(t, fault{driver: "nats", process: own.Process(3),
		options: `{replicas: 3, storage: "file", ackWait: "5s", confirmTimeout: "5s", urls: ` + string(list) + `}`})
	if o.Ledger.LostConfirmed > 0 {
		t.Errorf("%d messages that a majority had stored are lost", o.Ledger.LostConfirmed)
	}
}
