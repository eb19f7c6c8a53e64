package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// faulty is a driver whose broker cannot be reached, which is detected at a selected step. The error contains the
// password, as errors of client libraries do.
type faulty struct{}

// faultyCounts counts the sessions and teardowns at one address. Tests run in parallel, so each uses its own addresses.
type faultyCounts struct{ open, opened, teardowns atomic.Int64 }

var faultyAddresses sync.Map // address to *faultyCounts

func faultyAt(address string) *faultyCounts {
	counts, _ := faultyAddresses.LoadOrStore(address, &faultyCounts{})
	return counts.(*faultyCounts)
}

func init() { drivers.Register(faulty{}) }

func (faulty) Info() drivers.Info {
	return drivers.Info{Name: "faulty", Schema: "#Options: {...}",
		Declare: func(_ json.RawMessage, use drivers.Use) drivers.Declaration {
			return loopback.Driver{}.Info().Declare(json.RawMessage("{}"), use)
		}}
}

func (faulty) Open(_ context.Context, options json.RawMessage, _ drivers.Env) (drivers.Session, error) {
	var o struct{ Fail, URL string }
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	s := &faultySession{fail: o.Fail, counts: faultyAt(o.URL), err: errors.New("dial " + o.URL + ": connection refused")}
	if o.Fail == "open" {
		return nil, s.err
	}
	s.counts.open.Add(1)
	s.counts.opened.Add(1)
	return s, nil
}

type faultySession struct {
	fail   string
	counts *faultyCounts
	err    error
	closed atomic.Bool
}

func (s *faultySession) at(step string) error {
	if s.fail == step {
		return s.err
	}
	return nil
}

func (s *faultySession) Setup(context.Context, drivers.Topology) error { return s.at("setup") }

func (s *faultySession) Teardown(context.Context, drivers.Topology) error {
	s.counts.teardowns.Add(1)
	return nil
}

func (s *faultySession) Connect(context.Context, drivers.ConnSpec) (drivers.Conn, error) {
	return &drivertest.Conn{
		Publishing: func(drivers.PublisherSpec) (drivers.Publisher, error) { return faultyEnd{}, s.at("publisher") },
		Consuming:  func(drivers.ConsumerSpec) (drivers.Consumer, error) { return faultyEnd{}, s.at("consumer") },
	}, nil
}

func (s *faultySession) Close() error {
	if !s.closed.Swap(true) {
		s.counts.open.Add(-1)
	}
	return nil
}

// faultyEnd is a publisher or consumer that is never used.
type faultyEnd struct{ drivertest.Endless }

func (faultyEnd) Publish(context.Context, drivers.Message) error { return errors.New("not to be used") }
func (faultyEnd) Flush(context.Context) error                    { return nil }
func (faultyEnd) Ack(int)                                        {}
func (faultyEnd) Nack(int)                                       {}
func (faultyEnd) Stop()                                          {}
func (faultyEnd) Close() error                                   { return nil }
