package engine

import (
	"context"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

// publish makes the publisher of a connection.
type publish = func(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher, error)

// publishers returns a session whose publishers are made by a function.
func publishers(session drivers.Session, f publish) drivers.Session {
	return drivertest.Hooks{Session: session, Publishing: f}
}

// sessionOf is a session without a broker. Its connections make these publishers and consumers.
type sessionOf struct {
	drivers.Session
	publisher func(drivers.PublisherSpec) drivers.Publisher
	consumer  func() drivers.Consumer
}

func (s sessionOf) Connect(context.Context, drivers.ConnSpec) (drivers.Conn, error) {
	return &drivertest.Conn{
		Publishing: func(spec drivers.PublisherSpec) (drivers.Publisher, error) { return s.publisher(spec), nil },
		Consuming:  func(drivers.ConsumerSpec) (drivers.Consumer, error) { return s.consumer(), nil },
	}, nil
}
