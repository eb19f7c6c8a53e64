// Package mongodb drives MongoDB, and what speaks its protocol, as a queue: through the library mongo-driver, without its retries.
package mongodb

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"lockstep/pkg/drivers"
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
	s := &session{options: o, env: env, links: map[*link]struct{}{}, seats: map[int]*seat{}, known: map[string]bool{}}
	admin, err := s.connect(ctx, env.Dial)
	if err != nil {
		return nil, err
	}
	s.admin.link = admin
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
	server  server // what answered Open

	admin, aside spare // for declarations, and for probes

	mu       sync.Mutex
	closed   bool
	links    map[*link]struct{} // every one that is open
	seats    map[int]*seat      // by connection number
	known    map[string]bool    // collections that are there
	depths   []string           // collections of the task, for probes
	cpu      cpuReading         // of the last probe
	silent   bool               // the server leaves w: 0 without an answer: asked once, under silence
	silence  sync.Mutex
	ending   sync.Once
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
	if by.link == nil || by.link.broken() != nil {
		if by.link != nil {
			by.link.close()
		}
		l, err := s.connect(ctx, by.dial)
		if err != nil {
			return nil, err
		}
		by.link = l
	}
	return by.link.client.Database(s.options.Database), nil
}

// Close ends every connection, and whatever waits for an answer on it.
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
	})
	return nil
}

// opened takes a new link into the session.
func (s *session) opened(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("session: %w", drivers.ErrClosed)
	}
	s.links[l] = struct{}{}
	return nil
}
