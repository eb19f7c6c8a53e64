// Package amqp10 speaks AMQP 1.0 for the drivers of brokers that know it. It has their connections, publishers and
// consumers; what a broker calls its queues, and how they are declared and removed, is the driver's. It keeps to the
// bare cost of the library go-amqp for each message, never sends anything twice, and never reconnects by itself.
package amqp10

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"

	"lockstep/pkg/drivers"
)

// Terminus is the end of a link at the broker.
type Terminus struct {
	Address      string
	Capabilities []string // what kind of thing the address is to be: "queue" or "topic"
}

// Session is one agent's use of a broker during one task. Its methods are safe for concurrent use.
type Session struct {
	settings
	product string // in errors
	env     drivers.Env
	tls     tlsSource

	adminMu sync.Mutex
	admin   *link // of what is no part of the measured path; replaced when it broke
	asker   *asker

	mu     sync.Mutex
	closed bool
	links  map[*link]struct{} // every open connection
	shared map[int]*share
	at     int // index of the endpoint that answered last
}

// Open prepares a session and makes its first connection, so that a broker which is not there is known at once.
func Open(ctx context.Context, product string, o Options, env drivers.Env) (*Session, error) {
	settings, err := o.settings()
	if err != nil {
		return nil, err
	}
	s := &Session{
		settings: settings, product: product, env: env,
		links: map[*link]struct{}{}, shared: map[int]*share{},
	}
	s.tls.config = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.TLS.Insecure}
	if err := env.Access.LoadTLS(s.tls.config, o.TLS.CA, "", ""); err != nil {
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

// Env is what the session was opened with.
func (s *Session) Env() drivers.Env { return s.env }

// Properties are what the broker says of itself as a connection opens.
func (s *Session) Properties(ctx context.Context) (map[string]any, error) {
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	l, err := s.aside(ctx)
	if err != nil {
		return nil, err
	}
	return l.Conn.Properties(), nil
}

// aside is the connection for declarations and questions. The caller holds adminMu.
func (s *Session) aside(ctx context.Context) (*link, error) {
	if s.admin != nil && !s.admin.broken() {
		return s.admin, nil
	}
	l, err := s.dial(ctx, s.env.Aside())
	if err != nil {
		return nil, err
	}
	if s.admin != nil {
		s.admin.close()
	}
	s.admin, s.asker = l, nil
	return l, nil
}

// Close ends every connection; the broker gets a short while to take the news.
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
