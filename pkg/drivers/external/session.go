package external

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/internal/legacy"
)

// maxForwards and maxEvents are the maximum numbers of forwards and events per session.
const (
	maxForwards = 1000
	maxEvents   = 10_000
)

// session is a session with its own process of the driver.
type session struct {
	driver  *Driver
	link    *link
	env     drivers.Env
	options json.RawMessage

	ctx    context.Context // cancelled by Close
	cancel context.CancelFunc
	once   sync.Once
	asking sync.WaitGroup // running forwards

	mu       sync.Mutex
	closed   bool
	events   int
	forwards int
	local    map[string]string // local addresses of forwards, by address
}

var _ interface {
	drivers.Describer
	drivers.Prober
	drivers.Binder
	drivers.Cleaner
	drivers.ClientProcesses
} = (*session)(nil)

// Open starts a process of the driver, which opens a session.
func (d *Driver) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	return legacy.Wrap(d.open(ctx, options, env))
}

func (d *Driver) open(ctx context.Context, options json.RawMessage, env drivers.Env) (legacy.Session, error) {
	if !json.Valid(options) || len(options) == 0 || options[0] != '{' {
		return nil, fmt.Errorf("driver %s: open: options are no JSON object", d.description.Name)
	}
	env = withDefaults(env)
	l, desc, err := begin(ctx, d.description.Name, d.command, d.limit, env.Log)
	if err != nil {
		return nil, err
	}
	s := &session{driver: d, link: l, env: env, options: options, local: map[string]string{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.link.mu.Lock()
	s.link.serve = s.serve
	s.link.mu.Unlock()
	// the current description: the driver may have changed since a daemon registered it
	s.driver = &Driver{description: desc, command: d.command, limit: d.limit}
	if _, err := s.call(ctx, outbound{Type: "open", Options: options, Dir: env.Dir,
		Window: &window{windowMessages, windowBytes}}); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("driver %s: open: %w", d.description.Name, err)
	}
	return s, nil
}

func (s *session) call(ctx context.Context, request outbound) (json.RawMessage, error) {
	return s.link.call(ctx, request)
}

// do makes a call and returns its error.
func (s *session) do(ctx context.Context, doing string, request outbound) error {
	if _, err := s.call(ctx, request); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// Processes returns the driver's process, while it is running.
func (s *session) Processes() []int {
	p := s.link.proc
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return nil
	}
	return []int{p.pid}
}

func (s *session) Setup(ctx context.Context, t drivers.Topology) error {
	return s.do(ctx, "set up "+t.Name, outbound{Type: "setup", Topology: topologyOf(t)})
}

func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	return s.do(ctx, "tear down "+t.Name, outbound{Type: "teardown", Topology: topologyOf(t)})
}

// Publisher makes the driver connect a publisher.
func (s *session) Publisher(ctx context.Context, spec legacy.PublisherSpec) (legacy.Publisher, error) {
	p := &publisher{link: s.link, id: s.link.handle(), spec: spec, notice: legacy.NewNotice(spec.OnClosed),
		flushs: s.driver.description.Flushes, room: make(chan struct{}, 1)}
	request := outbound{Type: "publisher", Publisher: p.id, Topology: topologyOf(spec.Topology), Spec: publisherWords{
		place: place{spec.Queue, spec.Node, spec.Ordinal, spec.Connection}, Mode: spec.Mode, MaxInFlight: spec.MaxInFlight,
		Batch:      spec.Batch,
		Persistent: spec.Persistent, Mandatory: spec.Mandatory, Keyed: spec.Keyed}}
	if err := s.connect(ctx, "connect publisher", request, func() { s.link.publishers[p.id] = p }); err != nil {
		return nil, err
	}
	return p, nil
}

// Consumer makes the driver connect a consumer.
func (s *session) Consumer(ctx context.Context, spec legacy.ConsumerSpec, handle legacy.Handler) (legacy.Consumer,
	error) {
	c := newConsumer(s.link, spec, handle)
	request := outbound{Type: "consumer", Consumer: c.id, Topology: topologyOf(spec.Topology), Spec: consumerWords{
		place: place{spec.Queue, spec.Node, spec.Ordinal, spec.Connection}, Subscription: spec.Subscription, Prefetch: spec.Prefetch,
		Batch: c.spec.Batch,
		Ack:   spec.Ack, AckEvery: spec.AckEvery, AckInterval: milliseconds(spec.AckInterval)}}
	if err := s.connect(ctx, "connect consumer", request, func() { s.link.consumers[c.id] = c }); err != nil {
		return nil, err
	}
	go c.run()
	return c, nil
}

// connect opens a publisher or consumer. If ctx ends before the answer and the driver succeeds later, it is closed.
func (s *session) connect(ctx context.Context, doing string, request outbound, add func()) error {
	s.link.mu.Lock()
	err := s.link.cause
	if err == nil {
		s.mu.Lock()
		if s.closed {
			err = fmt.Errorf("session: %w", drivers.ErrClosed)
		}
		s.mu.Unlock()
	}
	if err == nil {
		add() // its frames may arrive before the answer
	}
	s.link.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	handle := max(request.Publisher, request.Consumer)
	_, err = s.link.callOr(ctx, request, func() {
		s.link.ask(outbound{Type: "close", Publisher: request.Publisher, Consumer: request.Consumer},
			func(json.RawMessage, error) {})
	})
	if err != nil {
		s.link.forget(handle)
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// serve processes a forward or event of the driver. The reader calls it, so it does not block. An error is a protocol
// error of the driver.
func (s *session) serve(request inbound) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if request.Type == typeEvent {
		s.event(request)
		return nil
	}
	if s.forwards++; s.forwards > maxForwards { // otherwise answers would pile up for a driver that does not read
		return fmt.Errorf("forward: a session gets at most %d; request each address once", maxForwards)
	}
	s.asking.Go(func() { s.forward(request) })
	return nil
}

func (s *session) event(e inbound) {
	kind := drivers.EventKind(e.Kind)
	if !slices.Contains([]drivers.EventKind{drivers.EventBlocked, drivers.EventUnblocked, drivers.EventRebalanced},
		kind) {
		kind = drivers.EventNotice
	}
	switch s.events++; {
	case s.events < maxEvents:
		s.env.Event(kind, bounded(e.Detail))
	case s.events == maxEvents:
		s.env.Event(drivers.EventNotice, fmt.Sprintf("driver %s reported %d events; those that follow are left out",
			s.link.name, maxEvents))
	}
}

// forward opens a forward to an address, or reuses an existing one, and sends the answer.
func (s *session) forward(request inbound) {
	s.mu.Lock()
	local := s.local[request.Address]
	s.mu.Unlock()
	if local == "" {
		var err error
		if local, err = s.env.Forward(s.ctx, request.Address); err != nil {
			_ = s.link.out.put(outbound{Type: "failed", ID: request.ID, Message: err.Error()})
			return
		}
		s.mu.Lock()
		s.local[request.Address] = local
		s.mu.Unlock()
	}
	_ = s.link.out.put(outbound{Type: "done", ID: request.ID, Local: local})
}

// Close closes all publishers and consumers and ends the process, without waiting for confirms.
func (s *session) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.cancel()
		s.link.mu.Lock()
		publishers, consumers := s.link.publishers, s.link.consumers
		s.link.publishers, s.link.consumers = map[uint64]*publisher{}, map[uint64]*consumer{}
		s.link.mu.Unlock()
		for _, p := range publishers {
			p.notice.End()
			p.settle(fmt.Errorf("session: %w", drivers.ErrClosed))
		}
		for _, c := range consumers {
			c.notice.End()
			c.halt()
		}
		s.link.end()
		s.asking.Wait()
	})
	return nil
}
