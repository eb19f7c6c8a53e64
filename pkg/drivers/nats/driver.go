// Package nats drives NATS JetStream with the library nats.go. It adds very little to the library's own cost per
// message. It never sends a message twice, and never reconnects by itself.
package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// grace is the maximum time for an orderly end of a connection, publisher or consumer.
const grace = 2 * time.Second

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that an unreachable broker is reported immediately.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := kit.Decode[options]("nats", raw)
	if err != nil {
		return nil, err
	}
	secure, err := o.TLS.Config(env.Access)
	if err != nil {
		return nil, fmt.Errorf("read nats options: %w", err)
	}
	s := &session{options: o, env: env, names: map[string]string{}, known: map[string]struct{}{}}
	if s.monitor, err = newMonitor(o.Monitoring, kit.HTTP(env.ManagementDialer(), secure)); err != nil {
		return nil, err
	}
	if s.security, err = o.authentication(env.Access); err != nil {
		return nil, fmt.Errorf("read nats options: %w", err)
	}
	if o.TLS != nil {
		s.security = append(s.security, client.Secure(secure))
	}
	if o.Embedded {
		if s.server, err = borrow(&o, env.Dir); err != nil {
			return nil, err
		}
		o.URL = s.server.url()
	}
	if s.endpoints, err = o.endpoints(); err != nil {
		return nil, err
	}
	if _, err = s.management(ctx); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// session is one agent's use of a broker during one task. It has more than 25 methods: it implements drivers.Session
// and optional interfaces, and each needs requests to the broker.
type session struct {
	options   options
	security  []client.Option // authentication and TLS of every connection
	endpoints []kit.Endpoint
	env       drivers.Env
	server    *embedded // nil without the option embedded
	conns     kit.Conns
	admin     kit.Spare[*conn] // for declarations
	probes    kit.Spare[*conn] // for the broker's metrics; it bypasses the simulated network
	monitor   monitor
	grown     kit.Rates
	task      atomic.Pointer[drivers.Topology] // for Probe; nil before Setup or Verify
	roles     kit.Recent[[]kit.Endpoint]       // by role and stream

	mu    sync.Mutex
	names map[string]string   // server names by address
	known map[string]struct{} // names of streams that exist

	ending sync.Once
	end    error
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Cleaner
	drivers.Placer
	drivers.Verifier
} = (*session)(nil)

// Close closes all connections, and stops the embedded server if no other session uses it.
func (s *session) Close() error {
	s.ending.Do(func() {
		s.conns.Close()
		s.monitor.client.CloseIdleConnections()
		s.end = s.release()
	})
	return s.end
}

func (s *session) release() error {
	if s.server == nil {
		return nil
	}
	return s.server.giveBack()
}

// management returns JetStream on the connection for declarations. It connects again if that has ended.
func (s *session) management(ctx context.Context) (jetstream.JetStream, error) {
	c, err := s.admin.Get(func() (*conn, error) { return s.dialFirst(ctx, s.endpoints, s.env.Dial) })
	if err != nil {
		return nil, err
	}
	return jetstream.New(c.nc)
}
