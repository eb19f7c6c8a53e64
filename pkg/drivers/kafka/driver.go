// Package kafka drives Apache Kafka, through the library kafka-go or through franz-go: they publish and consume by the
// same rules, so that they compare. It adds little to the bare cost of a message, sends nothing twice, and never
// reconnects by itself. The cluster is administered, and asked for metrics, through franz-go with either.
package kafka

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/growth"
)

// grace is how long something that ends may take to end in order.
const grace = 2 * time.Second

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and asks one of the brokers for a sign of life, so that one which is not there, or does not
// let us in, is known at once.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := parseOptions(raw)
	if err != nil {
		return nil, err
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	s := &session{options: o, env: env, links: map[*link]struct{}{}, seats: map[seatKey]*seat{},
		orphans: map[string][]string{}}
	if s.tls, err = o.tlsConfig(env.Access); err != nil {
		return nil, fmt.Errorf("open kafka session: %w", err)
	}
	if s.sasl, err = o.goMechanism(); err != nil {
		return nil, fmt.Errorf("open kafka session: %w", err)
	}
	if s.admin, err = s.administrator(); err != nil {
		return nil, fmt.Errorf("open kafka session: %w", err)
	}
	if _, err := within(ctx, func() (any, error) { return nil, s.admin.Ping(ctx) }); err != nil {
		s.admin.Close()
		return nil, fmt.Errorf("connect to Kafka at %s: %w", strings.Join(o.Brokers, ", "), explain(err))
	}
	return s, nil
}

// session is one agent's use of a cluster during one task.
type session struct {
	options options
	env     drivers.Env
	tls     *tls.Config    // nil without TLS
	sasl    sasl.Mechanism // kafka-go's; nil without a user
	admin   prompt
	grown   growth.Counters

	mu      sync.Mutex
	closed  bool
	links   map[*link]struct{} // every open one
	seats   map[seatKey]*seat
	orphans map[string][]string // client ids by group, of consumers that broke and are still its members
	task    drivers.Topology    // the one that was last used

	ending sync.Once
}

// Close ends every connection.
func (s *session) Close() error {
	s.ending.Do(func() {
		s.mu.Lock()
		s.closed = true
		var open []*link
		for l := range s.links {
			open = append(open, l)
		}
		s.mu.Unlock()
		for _, l := range open {
			l.close()
		}
		s.admin.Close()
	})
	return nil
}

// remember keeps the topology for those who ask for metrics.
func (s *session) remember(t drivers.Topology) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.task = t
}

func (s *session) topology() drivers.Topology {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.task
}

func (s *session) event(kind drivers.EventKind, detail string) {
	if s.env.Event != nil {
		s.env.Event(kind, detail)
	}
}
