package external

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
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
	return s.do(ctx, "set up "+t.Name, outbound{Type: "setup", Topology: &t})
}

func (s *session) Teardown(ctx context.Context, t drivers.Topology) error {
	return s.do(ctx, "tear down "+t.Name, outbound{Type: "teardown", Topology: &t})
}

// These methods need capabilities that only some brokers have. Otherwise the driver's process answers with the kind
// "unsupported".

// answer makes a call and decodes its result.
func (s *session) answer(ctx context.Context, doing string, request outbound, into any) error {
	raw, err := s.call(ctx, request)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: read the driver's answer: %w", doing, err)
	}
	return nil
}

// Describe returns the broker's description. It adds the driver's version, which is part of the system under test.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	var d drivers.Description
	if err := s.answer(ctx, "describe broker", outbound{Type: "describe"}, &d); err != nil {
		return drivers.Description{}, err
	}
	if s.driver.description.Version != "" {
		if d.Settings == nil {
			d.Settings = map[string]string{}
		}
		d.Settings["driver"] = s.driver.description.Name + " " + s.driver.description.Version
	}
	return d, nil
}

// Probe returns the broker's own metrics.
func (s *session) Probe(ctx context.Context) ([]drivers.Metric, error) {
	var metrics []drivers.Metric
	if err := s.answer(ctx, "probe broker", outbound{Type: "probe"}, &metrics); err != nil {
		return nil, err
	}
	for _, f := range metrics {
		declared := func(m drivers.MetricInfo) bool { return m.Name == f.Name }
		if !slices.ContainsFunc(s.driver.description.Metrics, declared) {
			return nil, fmt.Errorf("probe broker: metric %q is not declared; add it to metrics of the description", f.Name)
		}
		if f.Value < 0 || math.IsInf(f.Value, 0) {
			return nil, fmt.Errorf("probe broker: metric %q is %v; return a finite number that is at least 0", f.Name, f.Value)
		}
	}
	return metrics, nil
}

// Bind creates a binding while messages flow.
func (s *session) Bind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	return s.do(ctx, "bind", outbound{Type: "bind", Topology: &t, Binding: &binding{subscription, queue, key}})
}

// Unbind removes a binding of Bind.
func (s *session) Unbind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	return s.do(ctx, "unbind", outbound{Type: "unbind", Topology: &t,
		Binding: &binding{subscription, queue, key}})
}

// Leftovers lists objects of the broker whose names begin with prefix.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	var found []drivers.Leftover
	err := s.answer(ctx, "list leftovers", outbound{Type: "leftovers", Prefix: prefix}, &found)
	return found, err
}

// Cleanup removes objects that Leftovers returned.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	return s.do(ctx, "cleanup", outbound{Type: "cleanup", Leftovers: these})
}

// Connect makes the driver make a connection.
func (s *session) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	c := &conn{session: s, link: s.link, id: s.link.handle()}
	request := outbound{Type: "connect", Conn: c.id, Topology: &spec.Topology, Spec: spec}
	result, err := s.link.open(ctx, "connect", request, c)
	if err != nil {
		return nil, err
	}
	var at struct{ Node string }
	if len(result) > 0 && json.Unmarshal(result, &at) != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connect: the driver's answer is %.200s: return an object with the node, or nothing", result)
	}
	c.node = bounded(at.Node)
	return c, nil
}

// serve processes a forward, an event or repeated requests of the driver. The reader calls it, so it does not block. An
// error is a protocol error of the driver.
func (s *session) serve(request inbound) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	switch request.Type {
	case typeEvent:
		s.event(request)
		return nil
	case typeRetried:
		if request.Count < 1 {
			return fmt.Errorf("retried has the count %d: report requests when they are repeated, at least 1", request.Count)
		}
		s.env.Retried(int64(request.Count))
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
	if !slices.Contains([]drivers.EventKind{drivers.EventBlocked, drivers.EventUnblocked, drivers.EventRebalanced,
		drivers.EventReconnecting}, kind) {
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

// Close closes all connections and ends the process, without waiting for confirms.
func (s *session) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.cancel()
		s.link.shut()
		s.link.end()
		s.asking.Wait()
	})
	return nil
}
