// Package eventstore drives EventStoreDB and KurrentDB with the official client. A message is an event, a queue is a
// stream, and a subscription is a persistent subscription group. The answer to an append is the confirm. The library's
// discovery and reconnects are prevented.
package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
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
	if _, err := s.admin(ctx); err != nil {
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
	roles sync.Map // placed, by state of the member; cleared when a connection fails or breaks
	grown kit.Rates

	adminMu   sync.Mutex
	adminConn *conn // nil: not connected

	mu       sync.Mutex
	topology drivers.Topology // topology that was used last, for Probe
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Cleaner
} = (*session)(nil)

// admin returns the connection to the leader for declarations and metrics. It connects again after that broke.
func (s *session) admin(ctx context.Context) (*conn, error) {
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	if s.adminConn != nil && s.adminConn.Err() != nil {
		_ = s.adminConn.Close()
		s.adminConn = nil
	}
	if s.adminConn == nil {
		c, err := s.reach(ctx, drivers.AnyNode, s.aside)
		if err != nil {
			return nil, err
		}
		s.adminConn = c
	}
	return s.adminConn, nil
}

// used stores a topology for Probe.
func (s *session) used(t drivers.Topology) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topology = t
}

// Close closes all connections. Requests that wait for an answer fail.
func (s *session) Close() error {
	s.conns.Close()
	return nil
}
