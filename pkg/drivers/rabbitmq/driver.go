// Package rabbitmq drives RabbitMQ by AMQP 0.9.1 with the library amqp091-go. It adds very little to the library's own
// cost per message, never sends a message twice, and never reconnects by itself.
package rabbitmq

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that an unreachable broker is reported immediately.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := kit.Decode[options]("rabbitmq", raw)
	if err != nil {
		return nil, err
	}
	endpoints, err := o.endpoints()
	if err != nil {
		return nil, err
	}
	secure, err := o.TLS.Config(env.Access)
	if err != nil {
		return nil, fmt.Errorf("read rabbitmq options: %w", err)
	}
	s := &session{options: o, endpoints: endpoints, env: env, tls: secure, offsets: map[string]*atomic.Int64{},
		http: kit.HTTP(env.ManagementDialer(), secure), prober: prober{costly: map[string]time.Time{}}}
	if s.api, err = newManagement(&o, endpoints[0], s.http); err != nil {
		return nil, err
	}
	if s.plugins, err = kit.Endpoints("prometheus url", "http://host:15692", kit.Web, o.Prometheus...); err != nil {
		return nil, err
	}
	if s.admin, err = s.dial(ctx, administration, anywhere); err != nil {
		return nil, err
	}
	return s, nil
}

// session is one agent's use of a broker during one task. It has more than 25 methods: it implements drivers.Session
// and optional interfaces, and each needs requests to the broker.
type session struct {
	options   options
	endpoints []endpoint
	env       drivers.Env
	tls       *tls.Config
	http      *http.Client   // for api and plugins
	api       *management    // nil without the option management
	plugins   []kit.Endpoint // the nodes' Prometheus plugins; empty without the option prometheus
	prober    prober
	task      atomic.Pointer[drivers.Topology] // for Probe; nil before Setup
	binder    binder
	conns     kit.Conns

	adminMu sync.Mutex
	admin   *conn // for declarations; replaced if it is broken

	mu      sync.Mutex
	offsets map[string]*atomic.Int64 // by subscription and stream
	blocked int                      // number of connections that the broker blocks
	detail  string                   // detail of the current EventBlocked

	placesMu sync.Mutex
	nodes    []string             // names of the endpoints' nodes; nil until needed
	roles    kit.Recent[[]string] // names of the nodes in a role, by role and queue
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Binder
	drivers.Cleaner
	drivers.Placer
	drivers.Verifier
} = (*session)(nil)

// Close closes all connections. The broker has a few seconds to answer.
func (s *session) Close() error {
	s.conns.Close()
	s.http.CloseIdleConnections()
	return nil
}

// block reports EventBlocked when the first connection gets blocked, and unblock reports EventUnblocked when the last
// one is free. So blocked time is not counted twice. Both events have the same detail, whichever connection is the
// last.
func (s *session) block(address, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked++
	if s.blocked > 1 {
		return
	}
	s.detail = address
	s.env.Event(drivers.EventBlocked, s.detail)
	s.env.Event(drivers.EventNotice, fmt.Sprintf("RabbitMQ at %s blocks connections: %s", address, why))
}

func (s *session) unblock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked--
	if s.blocked == 0 {
		s.env.Event(drivers.EventUnblocked, s.detail)
	}
}
