package accuracy

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// observed wraps a driver and stamps every message in its calls, as loopback does.
type observed struct {
	drivers.Driver
	stamps atomic.Pointer[stamps] // of the current run
	number atomic.Uint64          // of publishers
}

// observe registers the driver under another name: "observed-" and its name.
func observe(name string) *observed {
	d, err := drivers.Lookup(name)
	if err != nil {
		panic(err)
	}
	o := &observed{Driver: d}
	drivers.Register(o)
	return o
}

func (o *observed) Info() drivers.Info {
	info := o.Driver.Info()
	info.Name = "observed-" + info.Name
	return info
}

func (o *observed) Open(ctx context.Context, options json.RawMessage, env drivers.Env) (drivers.Session, error) {
	s, err := o.Driver.Open(ctx, options, env)
	return drivertest.Hooks{Session: s, Publishing: o.publish, Consuming: o.consume}, err
}

func (o *observed) publish(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error) {
	number, to, confirm := o.number.Add(1), o.stamps.Load(), spec.OnConfirms
	spec.OnConfirms = func(tokens []uint64, err error) {
		if now := time.Now(); err == nil {
			for _, token := range tokens {
				to.take(loopback.Stamp{Kind: loopback.Confirmed, At: now, Publisher: number, Token: token})
			}
		}
		confirm(tokens, err)
	}
	p, err := conn.Publisher(ctx, spec)
	return observedPublisher{p, number, to}, err
}

func (o *observed) consume(ctx context.Context, conn drivers.Conn, spec drivers.ConsumerSpec,
	handle drivers.Handler) (drivers.Consumer, error) {
	to := o.stamps.Load()
	return conn.Consumer(ctx, spec, func(batch []drivers.Delivery) {
		now := time.Now()
		for i := range batch {
			to.take(loopback.Stamp{Kind: loopback.Delivered, At: now, Body: batch[i].Body})
		}
		handle(batch)
	})
}

type observedPublisher struct {
	drivers.Publisher
	number uint64
	to     *stamps
}

func (p observedPublisher) Publish(ctx context.Context, m drivers.Message) error {
	p.to.take(loopback.Stamp{Kind: loopback.Accepted, At: time.Now(), Publisher: p.number, Token: m.Token,
		Body: m.Body})
	return p.Publisher.Publish(ctx, m)
}
