// Package amqp10 implements AMQP 1.0 for drivers: connections, publishers and consumers. Names, declaration and removal
// of queues are up to the driver. The package adds very little to the cost of the library go-amqp per message, never
// sends a message twice, and never reconnects by itself.
package amqp10

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/kit"
)

// Terminus is the broker's end of a link.
type Terminus struct {
	Address      string
	Capabilities []string // the kind of the address: "queue" or "topic"
}

// Session is one agent's use of a broker during one task. Its methods are safe for concurrent use.
type Session struct {
	options   Options
	endpoints []kit.Endpoint
	product   string // name of the product, for errors
	env       drivers.Env
	tls       *tls.Config

	adminMu sync.Mutex
	admin   *link // connection outside the measured path; replaced if it is broken
	asker   *asker

	mu     sync.Mutex
	closed bool
	links  map[*link]struct{} // every open connection
	shared map[int]*share
	at     int // index of the endpoint that answered last
}

// Open prepares a session and makes its first connection, so that an unreachable broker is reported immediately.
func Open(ctx context.Context, product string, o Options, env drivers.Env) (*Session, error) {
	endpoints, err := o.endpoints()
	if err != nil {
		return nil, err
	}
	s := &Session{
		options: o, endpoints: endpoints, product: product, env: env,
		links: map[*link]struct{}{}, shared: map[int]*share{},
	}
	if s.tls, err = o.TLS.Config(env.Access); err != nil {
		return nil, err
	}
	if s.env.Log == nil {
		s.env.Log = slog.New(slog.DiscardHandler)
	}
	if s.env.Event == nil {
		s.env.Event = func(drivers.EventKind, string) {}
	}
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	if _, err := s.aside(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Env returns the Env of Open. Log and Event are never nil.
func (s *Session) Env() drivers.Env { return s.env }

// Properties returns the properties that the broker sends when a connection opens.
func (s *Session) Properties(ctx context.Context) (map[string]any, error) {
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	l, err := s.aside(ctx)
	if err != nil {
		return nil, err
	}
	return l.Conn.Properties(), nil
}

// aside returns the connection for declarations and requests. It reconnects if that is broken. The caller holds
// adminMu.
func (s *Session) aside(ctx context.Context) (*link, error) {
	if s.admin != nil && !s.admin.broken() {
		return s.admin, nil
	}
	l, err := s.dial(ctx, s.env.ManagementDialer())
	if err != nil {
		return nil, err
	}
	if s.admin != nil {
		s.admin.close()
	}
	s.admin, s.asker = l, nil
	return l, nil
}

// Close closes all connections. The broker has a few seconds to answer.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closed = true
	var open []*link
	for l := range s.links {
		open = append(open, l)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range open {
		wg.Go(l.close)
	}
	wg.Wait()
	return nil
}

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
