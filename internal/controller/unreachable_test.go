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

// unreachableDriver is a driver whose broker cannot be reached, which is detected at a selected step. The error
// contains the password, as errors of client libraries do.
type unreachableDriver struct{}

// unreachableCounts counts the sessions and teardowns at one address. Tests run in parallel, so each uses its own
// addresses.
type unreachableCounts struct{ open, opened, teardowns atomic.Int64 }

var unreachableAddresses sync.Map // address to *faultyCounts

func unreachableAt(address string) *unreachableCounts {
	counts, _ := unreachableAddresses.LoadOrStore(address, &unreachableCounts{})
	return counts.(*unreachableCounts)
}

func init() { drivers.Register(unreachableDriver{}) }

func (unreachableDriver) Info() drivers.Info {
	return drivers.Info{Name: "unreachable", Schema: "#Options: {...}",
		Declare: func(_ json.RawMessage, use drivers.Use) drivers.Declaration {
			return loopback.Driver{}.Info().Declare(json.RawMessage("{}"), use)
		}}
}

func (unreachableDriver) Open(_ context.Context, options json.RawMessage, _ drivers.Env) (drivers.Session, error) {
	var o struct{ Fail, URL string }
	if err := json.Unmarshal(options, &o); err != nil {
		return nil, err
	}
	s := &unreachableSession{fail: o.Fail, counts: unreachableAt(o.URL),
		err: errors.New("dial " + o.URL + ": connection refused")}
	if o.Fail == "open" {
		return nil, s.err
	}
	s.counts.open.Add(1)
	s.counts.opened.Add(1)
	return s, nil
}

type unreachableSession struct {
	fail   string
	counts *unreachableCounts
	err    error
	closed atomic.Bool
}

func (s *unreachableSession) at(step string) error {
	if s.fail == step {
		return s.err
	}
	return nil
}

func (s *unreachableSession) Setup(context.Context, drivers.Topology) error { return s.at("setup") }

func (s *unreachableSession) Teardown(context.Context, drivers.Topology) error {
	s.counts.teardowns.Add(1)
	return nil
}

func (s *unreachableSession) Connect(context.Context, drivers.ConnSpec) (drivers.Conn, error) {
	return &drivertest.Conn{
		Publishing: func(drivers.PublisherSpec) (drivers.Publisher, error) { return unusedClient{}, s.at("publisher") },
		Consuming:  func(drivers.ConsumerSpec) (drivers.Consumer, error) { return unusedClient{}, s.at("consumer") },
	}, nil
}

func (s *unreachableSession) Close() error {
	if !s.closed.Swap(true) {
		s.counts.open.Add(-1)
	}
	return nil
}

// unusedClient is a publisher or consumer that is never used.
type unusedClient struct{ drivertest.Endless }

func (unusedClient) Publish(context.Context, drivers.Message) error {
	return errors.New("not to be used")
}
func (unusedClient) Flush(context.Context) error { return nil }
func (unusedClient) Ack(int)                     {}
func (unusedClient) Nack(int)                    {}
func (unusedClient) Stop()                       {}
func (unusedClient) Close() error                { return nil }
