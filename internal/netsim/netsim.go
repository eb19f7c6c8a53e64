// Package netsim simulates the latency, jitter and bandwidth of a longer network with a net.Conn around a real one. It
// needs no root, proxy or kernel module. Bytes, ends and errors keep their order, and none arrives early. Deadlines,
// half-close and Close behave as on the real connection.
package netsim

import (
	"context"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
)

// Conditions describe the simulated network. The zero value is the real network. Negative fields count as zero.
type Conditions struct {
	// Latency is added to the real round trip, half in each direction.
	Latency time.Duration
	// Jitter is the maximum time that a round trip takes beyond Latency. Each direction takes up to half of it longer,
	// with a uniform distribution. Bytes never overtake: they arrive together with earlier bytes that arrive later.
	Jitter time.Duration
	// Bandwidth is in bytes per second, per connection and direction; 0: not limited.
	Bandwidth int64
	// Buffer is the maximum number of bytes in flight per connection and direction. Beyond it writes block. 0:
	// DefaultBuffer.
	Buffer int
	// Seed is that of the jitter. Each connection of a dialer has its own random stream.
	Seed uint64
	// Faults, if not nil, can inject faults into the connections.
	Faults *Faults
	// Delays, if not nil, records how accurately the connections keep the other conditions. A dialer with Delays
	// creates simulated connections even if all other conditions are zero.
	Delays *Delays
}

// DefaultBuffer is the default of Conditions.Buffer in bytes.
const DefaultBuffer = 4 << 20

// DialFunc has the signature of net.Dialer.DialContext.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer returns a dial function whose connections are those of base under the conditions c. A dial, also a refused
// one, takes one simulated round trip longer. Without latency, jitter, bandwidth, Faults and Delays, Dialer returns
// base itself. The result is safe for concurrent use if base is.
//
// The connections have CloseWrite if those of base do. Close returns at once. Bytes written before are delivered in the
// background; a peer that does not read has 10 seconds per piece. If the process exits, bytes in flight are lost. In a
// synctest bubble everything uses the bubble's time, if base's connections do (net.Pipe). Let half a round trip pass
// after Close.
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

// dial delays the request by one direction and the response, also a refusal, by the other.
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

// target is the address of a dial.
type target struct{ network, address string }

func (t target) Network() string { return t.network }
func (t target) String() string  { return t.address }

// Via returns a dial function that always dials proxy, a "host:port". If proxy is empty, it returns base.
func Via(base DialFunc, proxy string) DialFunc {
	if proxy == "" {
		return base
	}
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return base(ctx, network, proxy)
	}
}

// path computes the timing of one direction. It belongs to the line, whose lock guards it.
type path struct {
	latency   int64 // ns
	jitter    int64 // ns
	bandwidth int64 // bytes per second; 0: not limited
	usual     int64 // bandwidth without faults
	piece     int   // bytes that travel together: 1 ms of the bandwidth, at least one packet
	random    *rand.Rand
	free      int64 // when the last piece has been sent
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

// limit limits the path to bandwidth, and to usual if that is lower. 0 restores usual.
func (p *path) limit(bandwidth int64) {
	p.bandwidth = p.usual
	if bandwidth > 0 && (p.usual == 0 || bandwidth < p.usual) {
		p.bandwidth = bandwidth
	}
	p.piece = int(max(packet, p.bandwidth/1000))
}

// arrival returns when n bytes arrive that are sent now, after all earlier bytes.
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
