// Package netsim gives a connection the latency, jitter and bandwidth of a longer network, as a net.Conn
// around a real one: no root, no proxy, no kernel module. It promises that bytes, ends and errors keep their
// order, that none arrives early, and that deadlines, half-close and Close behave as on the real connection.
package netsim

import (
	"context"
	"net"
	"time"
)

// Conditions describe the simulated network. The zero value is the network as it is.
type Conditions struct {
	Latency   time.Duration // of a round trip; half of it each way
	Jitter    time.Duration // most that a round trip takes beyond Latency, uniformly drawn; half of it each way; order is kept
	Bandwidth int64         // bytes per second, each way, per connection; 0: not limited
	Buffer    int           // bytes in flight each way, then writing blocks; 0: DefaultBuffer
	Seed      uint64        // of the jitter; connections of one dialer draw different ones from it
}

// DefaultBuffer is how many bytes may be in flight each way unless Conditions say otherwise.
const DefaultBuffer = 4 << 20

// DialFunc dials as net.Dialer.DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer returns a dial function whose connections are base's under conditions c. Without latency, jitter and
// bandwidth it returns base itself, and so the bare connections. Safe for concurrent use.
func Dialer(base DialFunc, c Conditions) DialFunc {
	if c.Latency <= 0 && c.Jitter <= 0 && c.Bandwidth <= 0 {
		return base
	}
	panic("not written")
}

// Via returns a dial function that dials proxy instead of the address it is asked for.
func Via(base DialFunc, proxy string) DialFunc {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return base(ctx, network, proxy)
	}
}
