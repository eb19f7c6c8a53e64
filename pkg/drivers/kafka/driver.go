// Package kafka drives Apache Kafka with the library franz-go, or with the Writer and the Reader of kafka-go, as their
// users configure them. The driver sends no message twice, and never reconnects by itself. Declarations and metrics
// always use franz-go.
package kafka

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// grace is the maximum time for an orderly end of a publisher or consumer.
const grace = 2 * time.Second

func init() { drivers.Register(driver{}) }

type driver struct{}

// Open prepares a session and pings a broker, so that an unreachable broker or wrong credentials are reported
// immediately.
func (driver) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	o, err := kit.Decode[options]("kafka", raw)
	if err != nil {
		return nil, err
	}
	s := &session{options: o, env: env, staleMembers: map[string][]string{}}
	if o.TLS != nil {
		if s.tls, err = o.TLS.Config(env.Access); err != nil {
			return nil, fmt.Errorf("open kafka session: %w", err)
		}
	}
	if s.sasl, err = o.mechanism(); err != nil {
		return nil, fmt.Errorf("open kafka session: %w", err)
	}
	if s.admin, s.library, err = s.administrator(); err != nil {
		return nil, fmt.Errorf("open kafka session: %w", err)
	}
	if _, err := query(ctx, func(ctx context.Context) (any, error) { return nil, s.library.Ping(ctx) }); err != nil {
		s.admin.Close()
		return nil, fmt.Errorf("connect to Kafka at %s: %w", strings.Join(o.Brokers, ", "), explain(err))
	}
	return s, nil
}

// session is one agent's use of a cluster during one task. It has more than 25 methods: it implements drivers.Session
// and optional interfaces, and each needs requests to the broker.
type session struct {
	options options
	env     drivers.Env
	tls     *tls.Config // nil without TLS
	sasl    mechanism
	admin   *kadm.Client
	library *kgo.Client // of admin
	grown   kit.Rates
	conns   kit.Conns
	task    atomic.Pointer[drivers.Topology] // the one that was used last, for Probe and Describe; nil before

	mu           sync.Mutex
	staleMembers map[string][]string // by group: client IDs of consumers that broke and may still be its members

	ending sync.Once
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Cleaner
	drivers.Placer
	drivers.Verifier
} = (*session)(nil)

func (s *session) Close() error {
	s.ending.Do(func() {
		s.conns.Close()
		s.admin.Close()
	})
	return nil
}
