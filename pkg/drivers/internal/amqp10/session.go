// Package amqp10 implements AMQP 1.0 for drivers: connections, publishers and consumers. Names, declaration and removal
// of queues are up to the driver. The package adds very little to the cost of the library go-amqp per message, never
// sends a message twice, and never reconnects by itself.
package amqp10

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// Terminus is the broker's end of a link.
type Terminus struct {
	Address      string
	Capabilities []string // the kind of the address: "queue" or "topic"
}

// Addresses returns the termini of a topology's queues.
type Addresses struct {
	Target func(t drivers.Topology, queue int) Terminus               // of publishers
	Source func(t drivers.Topology, subscription, queue int) Terminus // of consumers
}

// Session is one agent's use of a broker during one task. A driver's session embeds it for Connect and Close of
// drivers.Session. Its methods are safe for concurrent use.
type Session struct {
	// Task is the topology that was used last, for Probe. Connect stores it, and Setup of the driver should.
	Task atomic.Pointer[drivers.Topology]

	options   Options
	addresses Addresses
	endpoints []kit.Endpoint
	product   string // name of the product, for errors
	env       drivers.Env
	tls       *tls.Config
	conns     kit.Conns

	adminMu sync.Mutex
	admin   *conn // connection outside the measured path; replaced if it is broken
	asker   *asker

	at atomic.Int64 // index of the endpoint that answered last
}

// Open prepares a session and makes its first connection, so that an unreachable broker is reported immediately.
func Open(ctx context.Context, product string, o Options, addresses Addresses, env drivers.Env) (*Session, error) {
	endpoints, err := o.endpoints()
	if err != nil {
		return nil, err
	}
	s := &Session{options: o, addresses: addresses, endpoints: endpoints, product: product, env: env}
	if s.tls, err = o.TLS.Config(env.Access); err != nil {
		return nil, err
	}
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	if _, err := s.management(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Env returns the Env of Open.
func (s *Session) Env() drivers.Env { return s.env }

// Properties returns the properties that the broker sends when a connection opens.
func (s *Session) Properties(ctx context.Context) (map[string]any, error) {
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	c, err := s.management(ctx)
	if err != nil {
		return nil, err
	}
	return c.amqp.Properties(), nil
}

// Connect makes a connection for publishers or consumers.
func (s *Session) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	s.Task.Store(&spec.Topology)
	c, err := s.dial(ctx, s.env.Dial)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// management returns the connection for declarations and requests. It reconnects if that is broken. The caller holds
// adminMu.
func (s *Session) management(ctx context.Context) (*conn, error) {
	if s.admin != nil && !over(s.admin.Done()) {
		return s.admin, nil
	}
	c, err := s.dial(ctx, s.env.ManagementDialer())
	if err != nil {
		return nil, err
	}
	if s.admin != nil {
		_ = s.admin.Close()
	}
	s.admin, s.asker = c, nil
	return c, nil
}

// Close closes all connections. The broker has a few seconds to answer.
func (s *Session) Close() error {
	s.conns.Close()
	return nil
}
