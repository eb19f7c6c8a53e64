// Package eventstore drives EventStoreDB and KurrentDB with the official client. A message is an event, a queue is a
// stream, and a subscription is a persistent subscription group. The answer to an append is the confirm. The library's
// discovery and reconnects are prevented.
package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

const (
	// grace is the maximum time for an orderly end of a consumer.
	grace = 2 * time.Second
	// dialTimeout is the maximum time of a connection attempt.
	dialTimeout = 10 * time.Second
)

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that an unreachable server is reported immediately.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := kit.Decode[options]("eventstore", raw)
	if err != nil {
		return nil, err
	}
	s := &session{options: o, env: env}
	if s.endpoints, err = o.endpoints(); err != nil {
		return nil, err
	}
	if s.security, err = o.security(s.endpoints[0], env.Access, env.Dir); err != nil {
		return nil, fmt.Errorf("read eventstore options: %w", err)
	}
	if env.Forward == nil {
		return nil, errors.New("open eventstore session: the library has no dialer hook: Env.Forward is missing")
	}
	if _, err := s.leader(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// session is one agent's use of a server or cluster during one task.
type session struct {
	options   options
	endpoints []kit.Endpoint
	security  security
	env       drivers.Env

	conns kit.Conns
	admin kit.Spare[*conn]           // to the leader, for declarations and metrics
	roles kit.Recent[[]kit.Endpoint] // by state of the member; cleared when a connection fails or breaks
	grown kit.Rates
	task  atomic.Pointer[drivers.Topology] // the one that was used last, for Probe; nil before
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Cleaner
} = (*session)(nil)

// leader returns the connection for declarations and metrics. It connects again if that has ended.
func (s *session) leader(ctx context.Context) (*conn, error) {
	return s.admin.Get(func() (*conn, error) { return s.reach(ctx, drivers.AnyNode, s.forwardManagement) })
}

// Close closes all connections. Requests that wait for an answer fail.
func (s *session) Close() error {
	s.conns.Close()
	return nil
}
