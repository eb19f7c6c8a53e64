package sqs

import (
	"context"
	"encoding/json"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

var lab = labtest.Broker{Name: "ElasticMQ, which stands in for SQS,", Parts: "elasticmq", Tests: "pkg/drivers/sqs"}

// standIn returns options for ElasticMQ. more is JSON that is merged into them.
func standIn(t testing.TB, more string) json.RawMessage {
	t.Helper()
	return labtest.Options(t, map[string]any{
		"endpoint": lab.Variable(t, "LOCKSTEP_SQS_ENDPOINT"), "region": "elasticmq", "accessKey": "x", "secret": "x",
		"visibility": "10s",
	}, more)
}

// rig is a session with a topology. Both are removed at the end of the test.
type rig struct {
	t        testing.TB
	session  *session
	topology drivers.Topology
	notices  chan string
}

func newRig(t testing.TB, options json.RawMessage, change func(*drivers.Topology)) *rig {
	t.Helper()
	r := &rig{t: t, topology: labtest.Topology(change), notices: make(chan string, 100)}
	r.session = labtest.Open(t, driver{}, options, labtest.Env(func(kind drivers.EventKind, detail string) {
		r.notices <- string(kind) + ": " + detail
	})).(*session)
	labtest.SetUp(t, r.session, &r.topology)
	return r
}

// connect makes a connection, which is closed with the session.
func (r *rig) connect() *conn {
	r.t.Helper()
	c, err := r.session.Connect(r.context(), drivers.ConnSpec{})
	if err != nil {
		r.t.Fatal(err)
	}
	return c.(*conn)
}

func (r *rig) context() context.Context { return labtest.Context(r.t) }
