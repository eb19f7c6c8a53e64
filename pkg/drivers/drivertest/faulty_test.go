package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// faulty is loopback with one fault.
type faulty struct {
	metrics   []drivers.MetricInfo // declared besides those of loopback
	declare   func(*drivers.Declaration)
	closes    func(s *faultySession)
	conn      func(drivers.Conn) drivers.Conn
	open      func(raw json.RawMessage) (json.RawMessage, error)
	setup     func(s drivers.Session, ctx context.Context, t drivers.Topology) error
	teardown  func(s drivers.Session, ctx context.Context, t drivers.Topology) error
	verify    func(s drivers.Session, ctx context.Context, t drivers.Topology) error
	pubSpec   func(*drivers.PublisherSpec)
	publisher func(drivers.Publisher, drivers.PublisherSpec) drivers.Publisher
	conSpec   func(*drivers.ConsumerSpec)
	consumer  func(drivers.Consumer) drivers.Consumer
	handler   func(drivers.Handler) drivers.Handler
	bind      func(b drivers.Binder, ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error
	unbind    func(b drivers.Binder, ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error
	probe     func(p drivers.Prober, ctx context.Context) ([]drivers.Metric, error)
	leftovers func(all []drivers.Leftover, prefix string) []drivers.Leftover
	cleanup   func(these []drivers.Leftover) []drivers.Leftover
}

func (f faulty) Info() drivers.Info {
	info := loopback.Driver{}.Info()
	info.Metrics = append(info.Metrics, f.metrics...)
	if f.declare != nil {
		declare := info.Declare
		info.Declare = func(raw json.RawMessage, u drivers.Use) drivers.Declaration {
			d := declare(raw, u)
			f.declare(&d)
			return d
		}
	}
	return info
}

func (f faulty) Open(ctx context.Context, raw json.RawMessage, env drivers.Env) (drivers.Session, error) {
	if f.open != nil {
		var err error
		if raw, err = f.open(raw); err != nil {
			return nil, err
		}
	}
	s, err := loopback.Driver{}.Open(ctx, raw, env)
	if err != nil {
		return nil, err
	}
	return &faultySession{Session: s, f: f}, nil
}

type faultySession struct {
	drivers.Session
	f        faulty
	topology drivers.Topology // of the first connection
}

func (s *faultySession) Close() error {
	if s.f.closes != nil {
		s.f.closes(s)
	}
	return s.Session.Close()
}

// Connect makes a connection with the faults.
func (s *faultySession) Connect(ctx context.Context, spec drivers.ConnSpec) (drivers.Conn, error) {
	if s.topology.Name == "" {
		s.topology = spec.Topology
	}
	return Hooks{Session: s.Session, Publishing: s.publish, Consuming: s.consume,
		Connecting: func(ctx context.Context, inner drivers.Session, spec drivers.ConnSpec) (drivers.Conn, error) {
			c, err := inner.Connect(ctx, spec)
			if err == nil && s.f.conn != nil {
				c = s.f.conn(c)
			}
			return c, err
		}}.Connect(ctx, spec)
}

func (s *faultySession) Setup(ctx context.Context, t drivers.Topology) error {
	topologies.Store(t.Name, true)
	if s.f.setup != nil {
		return s.f.setup(s.Session, ctx, t)
	}
	return s.Session.Setup(ctx, t)
}

func (s *faultySession) Teardown(ctx context.Context, t drivers.Topology) error {
	topologies.Delete(t.Name)
	if s.f.teardown != nil {
		return s.f.teardown(s.Session, ctx, t)
	}
	return s.Session.Teardown(ctx, t)
}

func (s *faultySession) Verify(ctx context.Context, t drivers.Topology) error {
	if s.f.verify != nil {
		return s.f.verify(s.Session, ctx, t)
	}
	return s.Session.(drivers.Verifier).Verify(ctx, t)
}

// topologies are the objects that the Cleaner of these tests finds, because loopback has none.
var topologies sync.Map

func (s *faultySession) Bind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	b := s.Session.(drivers.Binder)
	if s.f.bind != nil {
		return s.f.bind(b, ctx, t, subscription, queue, key)
	}
	return b.Bind(ctx, t, subscription, queue, key)
}

func (s *faultySession) Unbind(ctx context.Context, t drivers.Topology, subscription, queue int, key uint32) error {
	b := s.Session.(drivers.Binder)
	if s.f.unbind != nil {
		return s.f.unbind(b, ctx, t, subscription, queue, key)
	}
	return b.Unbind(ctx, t, subscription, queue, key)
}

func (s *faultySession) Probe(ctx context.Context) ([]drivers.Metric, error) {
	p := s.Session.(drivers.Prober)
	if s.f.probe != nil {
		return s.f.probe(p, ctx)
	}
	return p.Probe(ctx)
}

func (s *faultySession) Leftovers(_ context.Context, prefix string) (all []drivers.Leftover, _ error) {
	topologies.Range(func(name, _ any) bool {
		all = append(all, drivers.Leftover{Kind: "topology", Name: name.(string)})
		return true
	})
	slices.SortFunc(all, func(a, b drivers.Leftover) int { return strings.Compare(a.Name, b.Name) })
	if s.f.leftovers != nil {
		return s.f.leftovers(all, prefix), nil
	}
	return beginning(all, prefix), nil
}

func beginning(all []drivers.Leftover, prefix string) []drivers.Leftover {
	return slices.DeleteFunc(slices.Clone(all), func(x drivers.Leftover) bool {
		return !strings.HasPrefix(x.Name,
			prefix)
	})
}

func (s *faultySession) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	if s.f.cleanup != nil {
		these = s.f.cleanup(these)
	}
	for _, x := range these {
		topologies.Delete(x.Name)
		if err := s.Session.Teardown(ctx, drivers.Topology{Name: x.Name}); err != nil {
			return err
		}
	}
	return nil
}

func (s *faultySession) publish(ctx context.Context, c drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	own := spec
	if s.f.pubSpec != nil {
		s.f.pubSpec(&own)
	}
	p, err := c.Publisher(ctx, own)
	if err == nil && s.f.publisher != nil {
		p = s.f.publisher(p, spec)
	}
	return p, err
}

func (s *faultySession) consume(ctx context.Context, conn drivers.Conn, spec drivers.ConsumerSpec,
	h drivers.Handler) (drivers.Consumer, error) {
	if s.f.conSpec != nil {
		s.f.conSpec(&spec)
	}
	if s.f.handler != nil {
		h = s.f.handler(h)
	}
	c, err := conn.Consumer(ctx, spec, h)
	if err == nil && s.f.consumer != nil {
		c = s.f.consumer(c)
	}
	return c, err
}

// onConfirm is a fault that replaces OnConfirms, per message.
func onConfirm(change func(spec *drivers.PublisherSpec, token uint64, err error, call func(uint64, error))) faulty {
	return faulty{pubSpec: func(spec *drivers.PublisherSpec) {
		call, own := spec.OnConfirms, *spec
		spec.OnConfirms = func(tokens []uint64, err error) {
			for _, token := range tokens {
				change(&own, token, err, func(token uint64, err error) { call([]uint64{token}, err) })
			}
		}
	}}
}

// publishing is a publisher with a replaced Publish or Close.
type publishing struct {
	drivers.Publisher
	publish func(ctx context.Context, m drivers.Message) error
	flush   func(ctx context.Context) error
	close   func() error
}

func (p *publishing) Publish(ctx context.Context, m drivers.Message) error {
	if p.publish != nil {
		return p.publish(ctx, m)
	}
	return p.Publisher.Publish(ctx, m)
}

func (p *publishing) Flush(ctx context.Context) error {
	if p.flush != nil {
		return p.flush(ctx)
	}
	return p.Publisher.Flush(ctx)
}

func (p *publishing) Close() error {
	if p.close != nil {
		return p.close()
	}
	return p.Publisher.Close()
}

// option is a fault that adds an option that the declaration does not know.
func option(field string) faulty {
	return faulty{open: func(raw json.RawMessage) (json.RawMessage, error) {
		var o map[string]any
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte("{"+field+"}"), &o); err != nil {
			return nil, err
		}
		return json.Marshal(o)
	}}
}

// readsLate confirms or returns before it reads the body: it sends each message in the next call.
func readsLate(p drivers.Publisher, spec drivers.PublisherSpec) drivers.Publisher {
	var held *drivers.Message
	late := &publishing{Publisher: p}
	flush := func(ctx context.Context) (err error) {
		if held != nil {
			err, held = p.Publish(ctx, *held), nil
		}
		return err
	}
	late.publish = func(ctx context.Context, m drivers.Message) error {
		err := flush(ctx)
		held = &m
		if spec.Mode.Confirmed() {
			spec.OnConfirms([]uint64{m.Token}, nil)
		}
		return err
	}
	late.close = func() error { return errors.Join(flush(context.Background()), p.Close()) }
	return late
}

// sendsLate keeps each body without a copy, and sends it in the next call, or in Flush or Close.
func sendsLate(p drivers.Publisher, _ drivers.PublisherSpec) drivers.Publisher {
	var held *drivers.Message
	flush := func(ctx context.Context) (err error) {
		if held != nil {
			err, held = p.Publish(ctx, *held), nil
		}
		return err
	}
	return &publishing{
		Publisher: p, flush: flush,
		publish: func(ctx context.Context, m drivers.Message) error {
			err := flush(ctx)
			held = &m
			return err
		},
		close: func() error { return errors.Join(flush(context.Background()), p.Close()) },
	}
}

// consuming is a consumer with replaced methods; nil: the inner consumer's.
type consuming struct {
	drivers.Consumer
	ack, nack   func(n int)
	stop, close func()
}

func (c *consuming) Ack(n int) {
	if c.ack != nil {
		c.ack(n)
		return
	}
	c.Consumer.Ack(n)
}

func (c *consuming) Nack(n int) {
	if c.nack != nil {
		c.nack(n)
		return
	}
	c.Consumer.Nack(n)
}

func (c *consuming) Stop() {
	if c.stop != nil {
		c.stop()
		return
	}
	c.Consumer.Stop()
}

func (c *consuming) Close() error {
	if c.close != nil {
		c.close()
		return nil
	}
	return c.Consumer.Close()
}

// connecting is a connection with a replaced Cut or Close, and with a report of its end that the fault makes.
type connecting struct {
	drivers.Conn
	done       <-chan struct{} // nil: the inner connection's
	err        func() error
	cut, close func()
}

func (c *connecting) Done() <-chan struct{} {
	if c.done != nil {
		return c.done
	}
	return c.Conn.Done()
}

func (c *connecting) Err() error {
	if c.err != nil {
		return c.err()
	}
	return c.Conn.Err()
}

func (c *connecting) Cut() {
	if c.cut != nil {
		c.cut()
		return
	}
	c.Conn.Cut()
}

func (c *connecting) Close() error {
	if c.close != nil {
		c.close()
		return nil
	}
	return c.Conn.Close()
}
