package test

import (
	"encoding/json"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/test/lab/labtest"
)

// The NATS server of three that leads the stream is killed, to which a publisher and the consumer are connected. They
// continue on another one. Another publisher stays connected, while the stream has no leader. No message that a
// majority stored is lost, and none is rejected.
func TestNATSClusterNodeKilled(t *testing.T) {
	t.Parallel()
	own := labtest.Own(t, "nats3")
	urls := strings.Split(own.Variable("LOCKSTEP_NATS3_URLS"), ",")
	list, err := json.Marshal(append(urls[2:], urls[:2]...)) // the third is first: the first connection of each role goes there
	if err != nil {
		t.Fatal(err)
	}
	o := survivor(t, fault{driver: "nats", process: own.Process(3), cell: "publishers: threads: 2",
		options: `{replicas: 3, storage: "file", ackWait: "5s", confirmTimeout: "5s", urls: ` + string(list) + `}`})
	if o.Ledger.LostConfirmed > 0 {
		t.Errorf("%d messages that a majority had stored are lost", o.Ledger.LostConfirmed)
	}
	if n := o.Ledger.Rejected; n > 0 {
		t.Errorf("%d messages are rejected; those that no stream accepted have to be repeated", n)
	}
	if o.Values["retries"].Number == 0 {
		t.Error("no message is repeated while the stream has no leader")
	}
}
