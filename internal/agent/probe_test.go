package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// probe is a driver that counts the calls of its sessions.
type probe struct {
	setups, teardowns, open, max atomic.Int64
	sent                         atomic.Int64 // messages accepted by Publish
	failOpen                     bool
	opening                      chan drivers.Env // receives the environment of Open; nil: unused
	openGate                     chan struct{}    // Open then waits until it is closed, regardless of its context
	opened                       atomic.Int64     // successful calls of Open
	connectGate                  chan struct{}    // publishers connect when it is closed, regardless of their context
	publishGate                  chan struct{}    // Publish returns when it is closed
	blocked                      sync.WaitGroup   // Done by the first call that waits for stuck
	report                       chan string      // the link reports the text in an event after sending
	password                     atomic.Pointer[string]
	// metrics of its sessions, which then implement Prober
	metrics func(ctx context.Context, n int64) ([]drivers.Metric, error)
	probed  atomic.Int64
	leaders error  // why the leaders of queues are not known
	node    string // a member and leader; empty: none
}

var (
	probes    = map[string]*probe{}
	probeLock = make(chan struct{}, 1)
)

func (p *probe) register() string {
	probeLock <- struct{}{}
	defer func() { <-probeLock }()
	name := wire.NewName()
	probes[name] = p
	return name
}

type probeDriver struct{}

func init() { drivers.Register(probeDriver{}) }

func (probeDriver) Info() drivers.Info { return drivers.Info{Name: "probe", Declare: declareAll} }

// declareAll declares what loopback supports.
func declareAll(_ json.RawMessage, use drivers.Use) drivers.Declaration {
	return loopback.Driver{}.Info().Declare(json.RawMessage("{}"), use)
}

func (probeDriver) Open(_ context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	var o struct{ Probe, URL string }
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	probeLock <- struct{}{}
	p := probes[o.Probe]
	<-probeLock
	password := strings.TrimSuffix(strings.TrimPrefix(o.URL, "x://u:"), "@h")
	p.password.Store(&password)
	if p.failOpen {
		return nil, errors.New("dial " + o.URL + " with " + password + ": no such host")
	}
	if p.opening != nil {
		p.opening <- env
		<-p.openGate
	}
	defer p.opened.Add(1)
	if n := p.open.Add(1); n > p.max.Load() {
		p.max.Store(n)
	}
	if p.metrics != nil {
		return metricSession{&probeSession{p: p, env: env}}, nil
	}
	return &probeSession{p: p, env: env}, nil
}

type metricSession struct{ *probeSession }

func (s metricSession) Probe(ctx context.Context) ([]drivers.Metric, error) {
	return s.p.metrics(ctx, s.p.probed.Add(1))
}

type probeSession struct {
	p      *probe
	env    drivers.Env
	closed atomic.Bool
}

func (s *probeSession) Setup(context.Context, drivers.Topology) error { s.p.setups.Add(1); return nil }
func (s *probeSession) Teardown(context.Context, drivers.Topology) error {
	s.p.teardowns.Add(1)
	return nil
}
func (s *probeSession) Leaders(context.Context, drivers.Topology) (map[string]int, error) {
	if s.p.node == "" {
		return nil, s.p.leaders
	}
	return map[string]int{s.p.node: 1}, nil
}
func (s *probeSession) Describe(context.Context) (drivers.Description, error) {
	return drivers.Description{Product: "Probe", Members: strings.Fields(s.p.node)}, nil
}

func (s *probeSession) Connect(context.Context, drivers.ConnSpec) (drivers.Conn, error) {
	return &drivertest.Conn{Publishing: func(drivers.PublisherSpec) (drivers.Publisher, error) {
		if s.p.connectGate != nil {
			<-s.p.connectGate
		}
		return probePublisher{s: s}, nil
	}}, nil
}

func (s *probeSession) Close() error {
	if !s.closed.Swap(true) {
		s.p.open.Add(-1)
		if s.p.connectGate != nil {
			close(s.p.connectGate)
		}
	}
	return nil
}

type probePublisher struct {
	drivertest.Endless
	s *probeSession
}

func (p probePublisher) Publish(context.Context, drivers.Message) error {
	if p.s.p.publishGate != nil {
		p.s.p.blocked.Done()
		<-p.s.p.publishGate
	}
	select {
	case text := <-p.s.p.report:
		p.s.env.Event(drivers.EventNotice, text)
	default:
	}
	p.s.p.sent.Add(1)
	return nil
}
func (probePublisher) Flush(context.Context) error { return nil }
func (probePublisher) Close() error                { return nil }
