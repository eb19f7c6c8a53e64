// Package nats drives NATS JetStream through the library nats.go. It adds next to nothing to the bare cost of that
// library for each message, never sends anything twice, and never reconnects by itself.
package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"lockstep/pkg/drivers"
)

// grace is how long something that ends may take to end in order.
const grace = 2 * time.Second

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that a broker which is not there is known at once.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := parseOptions(raw)
	if err != nil {
		return nil, err
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	watch, err := newMonitor(o.Monitoring, env.Aside())
	if err != nil {
		return nil, err
	}
	s := &session{options: o, env: env, links: map[*link]struct{}{}, seats: map[seatKey]*seat{},
		names: map[string]string{},
		known: map[string]struct{}{}, prober: prober{monitor: watch}}
	if o.Credentials != "" {
		if s.credentials, err = env.Access.ReadFile(o.Credentials); err != nil {
			return nil, fmt.Errorf("read credentials: %w", err)
		}
	}
	if o.Embedded {
		if s.server, err = borrow(&o, env.Dir); err != nil {
			return nil, err
		}
		s.endpoints = []endpoint{s.server.endpoint()}
	} else if s.endpoints, err = o.endpoints(); err != nil {
		return nil, err
	}
	if s.admin, err = s.dialFirst(ctx, s.endpoints, s.env.Dial); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

// session is one agent's use of a broker during one task.
type session struct {
	options     options
	credentials []byte // the content of their file
	endpoints   []endpoint
	env         drivers.Env
	server      *embedded // nil without the option
	prober      prober

	adminMu sync.Mutex
	admin   *link // for declarations; replaced when it broke

	mu     sync.Mutex
	closed bool
	links  map[*link]struct{} // every open connection
	seats  map[seatKey]*seat
	names  map[string]string   // of the servers, by address
	known  map[string]struct{} // streams that are there

	ending sync.Once
	end    error
}

// Close ends every connection, and the embedded server if nobody else uses it.
func (s *session) Close() error {
	s.ending.Do(func() {
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
		s.prober.monitor.close()
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

// management gives the connection for declarations; if it broke, another.
func (s *session) management(ctx context.Context) (*link, jetstream.JetStream, error) {
	s.adminMu.Lock()
	defer s.adminMu.Unlock()
	if s.admin.broken() {
		l, err := s.dialFirst(ctx, s.endpoints, s.env.Dial)
		if err != nil {
			return nil, nil, err
		}
		s.admin = l
	}
	js, err := jetstream.New(s.admin.nc)
	if err != nil {
		return nil, nil, fmt.Errorf("use JetStream at %s: %w", s.admin.address, err)
	}
	return s.admin, js, nil
}
