package mongodb

import (
	"context"
	"encoding/json"
	"testing"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/labtest"
	"lockstep/pkg/drivers/internal/legacy"
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
	r.session = legacy.Of(labtest.Open(t, driver{}, options, labtest.Env(func(kind drivers.EventKind, detail string) {
		r.notices <- string(kind) + ": " + detail
	}))).(*session)
	labtest.SetUp(t, r.session, &r.topology)
	return r
}

func (r *rig) context() context.Context { return labtest.Context(r.t) }
