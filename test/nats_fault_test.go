package test

import (
	"encoding/json"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/test/lab/labtest"
)

// The leader of the stream in a cluster of three NATS servers is killed. A publisher and the consumer are connected to
// it, and continue on another server. Another publisher remains connected while the stream has no leader. No message
// that a majority stored is lost, and none is rejected.
func TestNATSClusterNodeKilled(t *testing.T) {
	t.Parallel()
	own := labtest.Own(t, "nats3")
	urls := strings.Split(own.Variable("LOCKSTEP_NATS3_URLS"), ",")
	list, err := json.Marshal(append(urls[2:], urls[:2]...)) // the third is first: the first connection of each role goes there
	if err != nil {
		t.Fatal(err)
	}
	o := runWithKill(t, fault{driver: "nats", process: own.Process(3), cell: "publishers: threads: 2",
		options: `{replicas: 3, storage: "file", ackWait: "5s", confirmTimeout: "5s", urls: ` + string(list) + `}`})
	if o.Ledger.LostConfirmed > 0 {
		t.Errorf("lost messages that a majority had confirmed: got %d, want 0", o.Ledger.LostConfirmed)
	}
	if n := o.Ledger.Rejected; n > 0 {
		t.Errorf("rejected messages: got %d, want 0, because messages without a leader are published again", n)
	}
	if o.Values["retries"].Number == 0 {
		t.Error("retries while the stream has no leader: got 0, want at least 1")
	}
}
