package mongodb

import (
	"context"
	"encoding/json"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

var lab = labtest.Broker{Name: "FerretDB, which stands in for MongoDB,", Parts: "mongodb", Tests: "pkg/drivers/mongodb"}

// standIn returns options for FerretDB behind the proxy, which makes its claims atomic. more is JSON that is merged
// into them.
func standIn(t testing.TB, more string) json.RawMessage {
	return labtest.Options(t, map[string]any{"url": lab.Variable(t, "LOCKSTEP_MONGODB_URL"), "visibility": "10s",
		"pollInterval": "5ms"}, more)
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
func (r *rig) connect() *conn { return connect(r.t, r.session) }

func connect(t testing.TB, s drivers.Session) *conn {
	t.Helper()
	c, err := s.Connect(labtest.Context(t), drivers.ConnSpec{})
	if err != nil {
		t.Fatal(err)
	}
	return c.(*conn)
}

// acknowledging connects a consumer whose messages are acknowledged when handle returns.
func acknowledging(t testing.TB, on *conn, spec drivers.ConsumerSpec, handle func([]drivers.Delivery)) drivers.Consumer {
	t.Helper()
	var c drivers.Consumer
	ready := make(chan struct{})
	c, err := on.Consumer(labtest.Context(t), spec, func(batch []drivers.Delivery) {
		<-ready
		handle(batch)
		c.Ack(len(batch))
	})
	if err != nil {
		t.Fatal(err)
	}
	close(ready)
	return c
}

func (r *rig) context() context.Context { return labtest.Context(r.t) }
