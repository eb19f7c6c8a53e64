package mongodb

import (
	"encoding/json"
	"testing"

	"lockstep/pkg/drivers/drivertest"
)

// FerretDB, which speaks MongoDB's protocol, stands in for MongoDB, behind a proxy that lets through one findAndModify, update or delete at
// a time: its own are not atomic. The visibility is short because the suite waits for what a broken link left claimed; longer than
// any of its handlers blocks.
func TestConformance(t *testing.T) {
	cases := []struct {
		name, options string
		slow          bool
	}{
		{"default", `{"unacknowledged": false}`, false},
		// FerretDB sorts all documents to find the first: a backlog takes its square in time.
		{"ordered", `{"unacknowledged": false, "order": "insertion", "ordered": true, "w": 1, "journal": false}`, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { drivertest.Run(t, harness(standIn(t, c.options), c.slow)) })
	}
	t.Run("unacknowledged", func(t *testing.T) {
		options := merge(t, map[string]any{"url": silent(t), "visibility": "2s"}, `{"inserters": 4, "insertBatch": 7, "wtimeout": "10s"}`)
		drivertest.Run(t, harness(options, true))
	})
}

func harness(options json.RawMessage, slow bool) drivertest.Harness {
	return drivertest.Harness{
		Driver: driver{}, Options: options,
		DeadOptions: json.RawMessage(`{"url": "mongodb://somebody:secret@127.0.0.1:1/"}`),
		DeadAddress: "127.0.0.1:1",
		Slow:        slow,
	}
}
