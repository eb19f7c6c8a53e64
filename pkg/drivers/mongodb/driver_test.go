package mongodb

import (
	"encoding/json"
	"slices"
	"testing"

	"lockstep/pkg/drivers/drivertest"
	"lockstep/pkg/drivers/internal/labtest"
)

// FerretDB, which speaks MongoDB's protocol, stands in for MongoDB, behind the lab's proxy: one change at a time, since
// its claims are not atomic, and no answers to what wants none. The visibility is short because one check waits for
// what a broken link left claimed; longer than a busy machine needs to handle a batch, or messages come again.
func TestConformance(t *testing.T) {
	cases := []struct {
		name, options string
		slow          bool
		subset        []string
	}{
		{"default", `{}`, false, nil},
		// FerretDB sorts all documents to find the first: a backlog takes its square in time.
		{"ordered", ordered, true, slices.Concat(drivertest.MessagePath(), []string{"close", "batch", "cut"})},
		{"concurrent", concurrent, false, slices.Concat(drivertest.MessagePath(),
			[]string{"close", "publish-blocks", "together", "cut/publisher"})},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { drivertest.Run(t, harness(standIn(t, c.options), c.slow, c.subset)) })
	}
}

const (
	ordered    = `{"unacknowledged": false, "order": "insertion", "ordered": true, "w": 1, "journal": false}`
	concurrent = `{"unacknowledged": false, "inserters": 4, "insertBatch": 7, "w": 2, "wtimeout": "10s"}`
)

func TestConformanceLong(t *testing.T) {
	labtest.Long(t)
	t.Run("ordered", func(t *testing.T) { drivertest.Run(t, harness(standIn(t, ordered), true, nil)) })
	t.Run("concurrent", func(t *testing.T) { drivertest.Run(t, harness(standIn(t, concurrent), false, nil)) })
}

func harness(options json.RawMessage, slow bool, subset []string) drivertest.Harness {
	return drivertest.Harness{
		Driver: driver{}, Options: options, Subset: subset,
		DeadOptions: json.RawMessage(`{"url": "mongodb://somebody:secret@127.0.0.1:1/"}`),
		DeadAddress: "127.0.0.1:1",
		Slow:        slow,
		MaxParallel: 2, // the proxy lets through one change at a time
	}
}
