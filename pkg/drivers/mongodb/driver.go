// Package mongodb drives MongoDB, and compatible servers, as a queue, with the library mongo-driver. Its retries are
// off.
package mongodb

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
	"lockstep/pkg/drivers/kit"
	"lockstep/pkg/drivers/requests"
)

// grace is the maximum time for an orderly end of a consumer or link.
const grace = 2 * time.Second

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that an unreachable server is reported immediately.
func (d driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	return legacy.Wrap(d.open(ctx, raw, env))
}

func (driver) open(ctx context.Context, raw json.RawMessage, env drivers.Env) (legacy.Session, error) {
	o, err := kit.Decode[options]("mongodb", raw)
	if err != nil {
		return nil, err
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	if env.Event == nil {
		env.Event = func(drivers.EventKind, string) {}
	}
	s := &session{options: o, env: env, known: map[string]bool{}}
	if s.tls, err = o.secured(env.Access); err != nil {
		return nil, fmt.Errorf("open mongodb session: %w", err)
	}
	s.admin.dial, s.aside.dial = env.Dial, env.ManagementDialer()
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

	links        requests.Links[*link]
	admin, aside spare // for declarations, and for probes
	grown        kit.Rates

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
} = (*session)(nil)

// spare is a link that is opened on demand, and again after it broke.
type spare struct {
	mu   sync.Mutex
	dial dialing
	link *link
}

// database returns the database over a spare link.
func (s *session) database(ctx context.Context, by *spare) (*mongo.Database, error) {
	by.mu.Lock()
	defer by.mu.Unlock()
	if by.link == nil || by.link.Err() != nil {
		if by.link != nil {
			s.links.Drop(by.link)
			by.link = nil
		}
		l, err := s.links.Open(func() (*link, error) { return s.connect(ctx, by.dial) })
		if err != nil {
			return nil, err
		}
		by.link = l
	}
	return by.link.client.Database(s.options.Database), nil
}

// Close closes all connections. Requests that wait for an answer fail.
func (s *session) Close() error {
	s.links.Close()
	return nil
}
