// Package mongodb drives MongoDB, and compatible servers, as a queue, with the library mongo-driver.
package mongodb

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// grace is the maximum time for an orderly end of a connection.
const grace = 2 * time.Second

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that an unreachable server is reported immediately.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := kit.Decode[options]("mongodb", raw)
	if err != nil {
		return nil, err
	}
	s := &session{options: o, env: env, known: map[string]bool{}}
	if s.tls, err = o.secured(env.Access); err != nil {
		return nil, fmt.Errorf("open mongodb session: %w", err)
	}
	if s.server, err = s.ask(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// session is one agent's use of a server during one task.
type session struct {
	options options
	env     drivers.Env
	tls     *tls.Config // nil: no TLS
	server  server      // description of the server that answered Open

	conns         kit.Conns
	admin, probes kit.Spare[*conn] // for declarations, and for probes
	grown         kit.Rates

	mu       sync.Mutex
	known    map[string]bool // first collections of queues that exist
	depths   []string        // the task's collections, for Probe
	silent   bool            // the server does not answer writes with w: 0; guarded by silence
	silence  sync.Mutex
	announce sync.Once
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Cleaner
	drivers.Verifier
} = (*session)(nil)

// database returns the database over a spare connection.
func (s *session) database(ctx context.Context, by *kit.Spare[*conn], dial kit.DialFunc) (*mongo.Database, error) {
	c, err := by.Get(func() (*conn, error) { return s.connect(ctx, dial) })
	if err != nil {
		return nil, err
	}
	return c.client.Database(s.options.Database), nil
}

// Close closes all connections. Requests that wait for an answer fail.
func (s *session) Close() error {
	s.conns.Close()
	return nil
}
