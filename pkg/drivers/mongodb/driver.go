// Package mongodb drives MongoDB, and what speaks its protocol, as a queue: through the library mongo-driver, without
// its retries.
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
	"lockstep/pkg/drivers/internal/growth"
	"lockstep/pkg/drivers/requests"
)

// grace is how long something that ends may take to end in order.
const grace = 2 * time.Second

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and makes its first connection, so that a server which is not there is known at once.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := parseOptions(raw)
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
	s.admin.dial, s.aside.dial = env.Dial, env.Aside()
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
	tls     *tls.Config // nil without
	server  server      // what answered Open

	links        requests.Links[*link]
	admin, aside spare // for declarations, and for probes
	grown        growth.Counters

	mu       sync.Mutex
	known    map[string]bool // collections that are there
	depths   []string        // collections of the task, for probes
	silent   bool            // the server leaves w: 0 without an answer: asked once, under silence
	silence  sync.Mutex
	announce sync.Once
}

// spare is a link that is made when it is needed, and again when it broke.
type spare struct {
	mu   sync.Mutex
	dial dialing
	link *link
}

// database gives the database through a spare link.
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

// Close ends every connection, and whatever waits for an answer on it.
func (s *session) Close() error {
	s.links.Close()
	return nil
}
