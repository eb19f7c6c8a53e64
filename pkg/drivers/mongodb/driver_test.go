package mongodb

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// FerretDB behind the lab's proxy is the stand-in for MongoDB. The proxy serialises changes, because FerretDB's claims
// are not atomic, and suppresses responses to unacknowledged writes. The visibility timeout is short, because one check
// waits for claims of a broken connection. It is longer than a busy machine needs for a batch, to avoid redeliveries.
// There are few claimers, because FerretDB scans all documents for each claim: TestLimitsAreFilled uses the default.
func TestConformance(t *testing.T) {
	cases := []struct {
		name, options string
		slow          bool
		subset        []string
	}{
		{"default", `{"claimers": 6}`, false, nil},
		// FerretDB sorts all documents to find the first one, so a backlog takes quadratic time.
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
	concurrent = `{"unacknowledged": false, "inserters": 10, "claimers": 4, "insertBatch": 13, "w": 2, "wtimeout": "10s",
		"resilience": "none"}`
)

func TestConformanceLong(t *testing.T) {
	labtest.Long(t)
	t.Run("ordered", func(t *testing.T) { drivertest.Run(t, harness(standIn(t, ordered), true, nil)) })
	t.Run("concurrent", func(t *testing.T) { drivertest.Run(t, harness(standIn(t, concurrent), false, nil)) })
}

func harness(options json.RawMessage, slow bool, subset []string) drivertest.Harness {
	return drivertest.Harness{
		Driver: driver{}, Options: options, Subset: subset,
		DeadOptions:   json.RawMessage(`{"url": "mongodb://somebody:secret@127.0.0.1:1/"}`),
		DeadAddress:   "127.0.0.1:1",
		Reject:        &drivertest.Rejection{Size: maxDocument},
		Slow:          slow,
		OneRequest:    bytes.Contains(options, []byte(`"insertion"`)),
		MaxParallel:   2,    // the proxy serialises changes
		NoPublishRate: true, // FerretDB does not count operations
		Existing: drivertest.Declared(driver{}, func(_ context.Context, _ drivers.Session, t drivers.Topology,
			made *drivertest.Existing) error {
			made.Queue = collectionName(t, 0, 0)
			return nil
		}),
	}
}

// TestTLS reaches the stand-in through a proxy, because it has no TLS.
func TestTLS(t *testing.T) {
	files := drivertest.NewCertificates(t)
	u, err := url.Parse(lab.Variable(t, "LOCKSTEP_MONGODB_URL"))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = drivertest.TLSProxy(t, files, u.Host)
	drivertest.Run(t, drivertest.Harness{Driver: driver{}, Subset: []string{"tls"}, TLS: &drivertest.TLS{
		Options: standIn(t, `{"url": "`+u.String()+`"}`), Certificates: files}})
}
