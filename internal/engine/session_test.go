package engine

import (
	"context"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

// publisherFunc creates the publisher of a connection.
type publisherFunc = func(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error)

// withPublishers returns a session whose publishers are created by f.
func withPublishers(session drivers.Session, f publisherFunc) drivers.Session {
	return drivertest.Hooks{Session: session, Publishing: f}
}

// fakeSession is a session without a broker. Its connections create these publishers and consumers.
type fakeSession struct {
	drivers.Session
	publisher func(drivers.PublisherSpec) drivers.Publisher
	consumer  func() drivers.Consumer
}

func (s fakeSession) Connect(context.Context, drivers.ConnSpec) (drivers.Conn, error) {
	return &drivertest.Conn{
		Publishing: func(spec drivers.PublisherSpec) (drivers.Publisher, error) { return s.publisher(spec), nil },
		Consuming:  func(drivers.ConsumerSpec) (drivers.Consumer, error) { return s.consumer(), nil },
	}, nil
}
