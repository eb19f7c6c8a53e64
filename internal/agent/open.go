package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"

	"lockstep/internal/clock"
	"lockstep/internal/engine"
	"lockstep/internal/netsim"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/pkg/drivers"
)

// open opens the driver's session and makes the engine; agent 0 declares the topology too.
func (t *task) open(ctx context.Context) error {
	if t.a.Protocol != plan.Protocol {
		return fmt.Errorf("assignment speaks protocol %d and this agent speaks %d: install the same release of Lockstep on both", t.a.Protocol, plan.Protocol)
	}
	if err := t.check(); err != nil {
		return err
	}
	broker := t.a.Task.Cell.Broker
	driver, err := drivers.Lookup(broker.Driver)
	if err != nil {
		return err
	}
	options, scrub, err := plan.Resolve(broker.Options, broker.Secret, t.cfg.Access)
	if err != nil {
		return err
	}
	t.scrub.Store(scrub)
	env, err := t.env()
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, t.work.Connect.D())
	defer cancel()
	session, err := driver.Open(opening, options, env)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.session = session
	t.mu.Unlock()
	e, err := engine.New(engine.Config{Assignment: t.a.Assignment, Session: session, Log: t.log, CopiesBody: t.a.Task.Cell.CopiesBody,
		Access: t.cfg.Access})
	if err != nil {
		return err
	}
	t.adopt(e)
	if t.a.Index != 0 {
		return nil
	}
	declaring, cancel := context.WithTimeout(ctx, t.work.Connect.D())
	defer cancel()
	if err := session.Setup(declaring, engine.Topology(t.a.Task)); err != nil {
		return fmt.Errorf("declare topology: %w", err)
	}
	return nil
}

// mostChurn bounds bindings and messages per second: beyond it an assignment is a mistake, or hostile.
const mostChurn = 10_000

// check refuses assignments that no matrix makes.
func (t *task) check() error {
	if err := t.work.Bounded(); err != nil {
		return fmt.Errorf("assignment has %w", err)
	}
	p, c, to := t.a.Publishers, t.a.Consumers, t.work.Topology
	senders, receivers := t.work.Publishers, t.work.Consumers
	for _, x := range []struct {
		name              string
		value, least, top int
	}{
		{"publishers", p.Count, 0, senders.Threads}, {"publishers of all agents", p.Total, p.Count, senders.Nodes * senders.Threads},
		{"first publisher", p.First, 0, p.Total - p.Count},
		{"consumers", c.Count, 0, receivers.Threads}, {"first consumer", c.First, 0, receivers.Nodes * receivers.Threads},
	} {
		if x.value < x.least || x.value > x.top {
			return fmt.Errorf("assignment has %d %s: want %d to %d", x.value, x.name, x.least, x.top)
		}
	}
	for _, x := range []struct {
		name         string
		value, least int
	}{{"queues", to.Queues, 1}, {"subscriptions", to.Subscriptions, 1}, {"bindings", to.Bindings, 1}, {"bytes of a message", t.work.Message.Size, engine.EnvelopeSize}} {
		if x.value < x.least {
			return fmt.Errorf("assignment has %d %s: want at least %d", x.value, x.name, x.least)
		}
	}
	if ch := to.Churn; ch.Rate != 0 && !(ch.Rate > 0 && ch.Rate <= mostChurn && ch.Probes > 0 && ch.Probes <= mostChurn && ch.Hold > 0) {
		return fmt.Errorf("assignment makes %v bindings a second for %v with %v messages a second each: want all above 0, and at most %d a second",
			ch.Rate, ch.Hold, ch.Probes, mostChurn)
	}
	return nil
}

// env is what the driver may use of this host.
func (t *task) env() (drivers.Env, error) {
	if t.cfg.Dir != "" {
		if err := os.MkdirAll(t.cfg.Dir, 0o755); err != nil {
			return drivers.Env{}, fmt.Errorf("make the task's folder: %w", err)
		}
	}
	dir, err := os.MkdirTemp(t.cfg.Dir, "lockstep-task-*")
	if err != nil {
		return drivers.Env{}, fmt.Errorf("make the task's folder: %w", err)
	}
	aside := (&net.Dialer{}).DialContext
	dial := netsim.DialFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := aside(ctx, network, address)
		if err == nil && t.a.Task.Cell.Broker.Via == "" && isLocal(conn) {
			t.localBroker.Store(true)
		}
		return conn, err
	})
	if via := t.a.Task.Cell.Broker.Via; via != "" {
		dial = netsim.Via(dial, via)
	}
	n := t.work.Network
	dial = netsim.Dialer(dial, netsim.Conditions{Latency: n.Latency.D(), Jitter: n.Jitter.D(), Bandwidth: n.Bandwidth, Seed: t.seed(),
		Faults: t.faults, Delays: t.delays})
	forwarder := netsim.NewForwarder(dial)
	t.mu.Lock()
	t.dir, t.forwarder = dir, forwarder
	t.mu.Unlock()
	forward := forwarder.Forward
	if t.delays == nil && t.faults == nil && t.a.Task.Cell.Broker.Via == "" {
		forward = t.direct // a relay would cost what no network does
	}
	return drivers.Env{Dial: countingWrites(dial), DialAside: aside, Forward: forward, Log: t.log, Event: t.event, Dir: dir,
		Access: t.cfg.Access}, nil
}

// direct leads to the address itself.
func (t *task) direct(_ context.Context, address string) (string, error) {
	host, _, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		t.localBroker.Store(true)
	}
	return address, nil
}

// seed makes jitter repeat from run to run, and differ between repetitions and agents.
func (t *task) seed() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d%s", t.a.Task.ID, t.a.Index, t.a.Task.Group) // never fails
	return h.Sum64()
}

// event takes what the driver reports of its link; there is no engine before Open has returned.
func (t *task) event(kind drivers.EventKind, detail string) {
	t.mu.Lock()
	e := t.engine
	if e == nil {
		t.early = append(t.early, record.Event{Kind: string(kind), Detail: detail})
	}
	t.mu.Unlock()
	if e != nil {
		e.Event(kind, detail)
	}
}

func (t *task) adopt(e *engine.Engine) {
	t.mu.Lock()
	t.engine = e
	early := t.early
	t.early = nil
	t.mu.Unlock()
	for _, x := range early {
		e.Event(drivers.EventKind(x.Kind), x.Detail)
	}
}

func (t *task) theEngine() *engine.Engine {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.engine
}

func (t *task) openSession() drivers.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session
}

// subject is what is tested, as the broker says. One that does not answer is still measured.
func (t *task) subject(ctx context.Context) *plan.Subject {
	broker := t.a.Task.Cell.Broker
	options, _, err := plan.Resolve(broker.Options, broker.Secret, t.cfg.Access)
	if err != nil { // it worked a moment ago: a file of secrets was changed
		options = broker.Options
	}
	s := &plan.Subject{Label: broker.Version}
	for _, e := range plan.Endpoints(options) {
		s.Endpoints = append(s.Endpoints, t.clean(e))
	}
	if broker.Via != "" {
		s.Endpoints = append(s.Endpoints, "via "+broker.Via)
	}
	describer, can := t.openSession().(drivers.Describer)
	if !can {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	d, err := describer.Describe(ctx)
	if err != nil {
		t.event(drivers.EventNotice, "describe broker: "+t.clean(err.Error()))
		return s
	}
	s.Product, s.Version, s.Members = t.clean(d.Product), t.clean(d.Version), d.Members
	for name, value := range d.Settings {
		if s.Settings == nil {
			s.Settings = make(map[string]string, len(d.Settings))
		}
		s.Settings[name] = t.clean(value)
	}
	return s
}

func (t *task) connectConsumers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.work.Connect.D())
	defer cancel()
	return t.theEngine().ConnectConsumers(ctx)
}

func (t *task) connectPublishers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.work.Connect.D())
	defer cancel()
	if err := t.theEngine().ConnectPublishers(ctx); err != nil {
		return err
	}
	t.setPhase(plan.PhaseReady)
	return nil
}

// errNoStart is a release that does not name this host's clock.
var errNoStart = errors.New("controller named no start time for clock " + clock.ID())
