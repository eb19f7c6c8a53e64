package netsim

import "context"

// Forwarder leads clients without a dialer hook through a dial function: it listens on loopback addresses
// and passes each connection on. Safe for concurrent use.
type Forwarder struct {
	dial DialFunc
}

// NewForwarder returns a forwarder whose upstream connections are made by dial.
func NewForwarder(dial DialFunc) *Forwarder { return &Forwarder{dial: dial} }

// Forward returns a loopback address ("127.0.0.1:port") whose connections go on to address, until Close.
func (f *Forwarder) Forward(ctx context.Context, address string) (string, error) {
	panic("not written")
}

// Close stops the listeners and closes every connection.
func (f *Forwarder) Close() error { return nil }
