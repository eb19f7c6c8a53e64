package mongodb

import (
	"encoding/json"
	"os"
	"testing"

	"lockstep/pkg/drivers/drivertest"
)

// FerretDB, which speaks MongoDB's protocol, stands in for MongoDB, behind the lab's proxy: one change at a time, since its claims are not
// atomic, and no answers to what wants none. The visibility is short because the suite waits for what a broken link left claimed;
// longer than any of its handlers blocks.
func TestConformance(t *testing.T) {
	cases := []struct {
		name, options string
		slow          bool
		restart       string
	}{
		{"default", `{}`, false, "mongodb"},
		// FerretDB sorts all documents to find the first: a backlog takes its square in time.
		{"ordered", `{"unacknowledged": false, "order": "insertion", "ordered": true, "w": 1, "journal": false}`, true, ""},
		{"concurrent", `{"unacknowledged": false, "inserters": 4, "insertBatch": 7, "w": 2, "wtimeout": "10s"}`, false, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { drivertest.Run(t, harness(standIn(t, c.options), c.slow, c.restart)) })
	}
}

// harness restarts the process of the lab that has the name, if one is given.
func harness(options json.RawMessage, slow bool, restart string) drivertest.Harness {
	h := drivertest.Harness{
		Driver: driver{}, Options: options,
		DeadOptions: json.RawMessage(`{"url": "mongodb://somebody:secret@127.0.0.1:1/"}`),
		DeadAddress: "127.0.0.1:1",
		Slow:        slow,
	}
	if restart != "" && os.Getenv("LOCKSTEP_LAB_CONTROL") != "" {
		h.Restart = func(t *testing.T) { disturb(t, "restart", restart) }
	}
	return h
}
