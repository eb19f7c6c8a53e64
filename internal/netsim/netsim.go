// Package netsim gives a connection the latency, jitter and bandwidth of a longer network, as a net.Conn
// around a real one: no root, no proxy, no kernel module. It guarantees that bytes, ends and errors keep their
// order, that none arrives early, and that deadlines, half-close and Close behave as on the real connection.
package netsim

import (
	"context"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"lockstep/internal/clock"
)

// Conditions describe the simulated network. The zero value is the network as it is; a field below zero
// counts as zero.
type Conditions struct {
	// Latency of a round trip, on top of the real one; half of it each way.
	Latency time.Duration
	// Jitter is the most that a round trip takes beyond Latency: each way takes up to half of it longer,
	// drawn uniformly. What would overtake is delivered with what it would have overtaken.
	Jitter time.Duration
	// Bandwidth in bytes per second, of each connection and each way; 0: as it is.
	Bandwidth int64
	// Buffer is how many bytes may be in flight each way of a connection, written and not yet taken at the
	// other end; beyond it writing blocks. 0: DefaultBuffer.
	Buffer int
	// Seed of the jitter. Each connection of a dialer draws from its own stream of it.
	Seed uint64
	// Faults, if there are any, are what can be done to the connections later.
	Faults *Faults
	// Delays, if there are any, collect how exactly the connections keep to the rest. With them a dialer makes
	// simulated connections even where nothing else is asked of it.
	Delays *Delays
}

// DefaultBuffer is the bytes in flight each way unless Conditions say otherwise.
const DefaultBuffer = 4 << 20

// DialFunc dials as net.Dialer.DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer returns a dial function whose connections are base's under conditions c. A dial, refused ones included, takes
// a round trip longer than base's. Without latency, jitter, bandwidth, Faults and Delays, Dialer returns base itself,
// and so the bare connections. The result is as safe for concurrent use as base.
//
// The connections have CloseWrite if base's do. Close returns at once; what was written before goes on to the peer
// behind it, for which a peer that does not read has 10 seconds a piece. A process that exits meanwhile loses what is
// still in flight. In a synctest bubble all of this runs on the bubble's time, if base's connections do (net.Pipe); let
// that time go on for half a round trip after Close.
func Dialer(base DialFunc, c Conditions) DialFunc {
	if c.Latency <= 0 && c.Jitter <= 0 && c.Bandwidth <= 0 && c.Faults == nil && c.Delays == nil {
		return base
	}
	if c.Faults != nil {
		base = c.Faults.dialer(base)
	}
	var dials atomic.Uint64
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		n := dials.Add(1)
		return dial(ctx, base, network, address, newPath(c, 2*n), newPath(c, 2*n+1), c)
	}
}

// dial has the request reach the peer after one way, and the answer, be it a refusal, come back after the other.
func dial(ctx context.Context, base DialFunc, network, address string, there, back *path, c Conditions) (net.Conn,
	error) {
	cut := func(err error) error {
		return &net.OpError{Op: "dial", Net: network, Addr: target{network, address}, Err: err}
	}
	if err := clock.Until(ctx, there.arrival(0, clock.Now())); err != nil {
		return nil, cut(err)
	}
	inner, failure := base(ctx, network, address)
	if err := clock.Until(ctx, back.arrival(0, clock.Now())); err != nil {
		if failure != nil {
			return nil, failure
		}
		inner.Close()
		return nil, cut(err)
	}
	if failure != nil {
		return nil, failure
	}
	return newConn(inner, there, back, c), nil
}

// target is an address as it was asked for.
type target struct{ network, address string }

func (t target) Network() string { return t.network }
func (t target) String() string  { return t.address }

// Via returns a dial function that dials proxy, a "host:port", whatever address it is asked for. An empty
// proxy is none: base itself.
func Via(base DialFunc, proxy string) DialFunc {
	if proxy == "" {
		return base
	}
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return base(ctx, network, proxy)
	}
}

// path is the timing of one way. It belongs to whoever puts bytes on that way.
type path struct {
	latency   int64 // ns
	jitter    int64 // ns
	bandwidth int64 // bytes per second; 0: not limited
	usual     int64 // bandwidth, but for what a fault makes of it
	piece     int   // bytes that travel as one: a millisecond's worth, but a packet at least
	random    *rand.Rand
	free      int64 // when the last piece is sent out
	last      int64 // when the last piece arrives
}

const packet = 1500

func newPath(c Conditions, stream uint64) *path {
	now := clock.Now()
	p := &path{
		latency: max(0, int64(c.Latency)) / 2, jitter: max(0, int64(c.Jitter)) / 2, usual: max(0, c.Bandwidth),
		random: rand.New(rand.NewPCG(c.Seed, stream)), free: now, last: now,
	}
	p.limit(0)
	return p
}

// limit has the path carry no more than bandwidth, and no more than usual; 0 is no limit but that.
func (p *path) limit(bandwidth int64) {
	p.bandwidth = p.usual
	if bandwidth > 0 && (p.usual == 0 || bandwidth < p.usual) {
		p.bandwidth = bandwidth
	}
	p.piece = int(max(packet, p.bandwidth/1000))
}

// arrival says when n bytes arrive that are sent now, behind all that was sent before.
func (p *path) arrival(n int, now int64) int64 {
	if p.bandwidth > 0 {
		busy := (int64(n)*int64(time.Second) + p.bandwidth - 1) / p.bandwidth
		p.free = max(p.free, now) + busy
		now = p.free
	}
	at := now + p.latency
	if p.jitter > 0 {
		at += p.random.Int64N(p.jitter + 1)
	}
	p.last = max(p.last, at)
	return p.last
}
