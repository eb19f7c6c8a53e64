package netsim

import (
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
)

// roundTrips measures n round trips of 100 bytes, in ns, sorted.
func roundTrips(t testing.TB, near net.Conn, n int) []int64 {
	t.Helper()
	buffer := make([]byte, 100)
	took := make([]int64, 0, n)
	for range n {
		begin := clock.Now()
		if _, err := near.Write(buffer); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(near, buffer); err != nil {
			t.Fatal(err)
		}
		took = append(took, clock.Now()-begin)
	}
	slices.Sort(took)
	return took
}

var latencies = []time.Duration{time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond}

// A round trip on loopback takes at least the latency. TestRoundTripsAreExact proves the upper bound, and Delays record
// the excess.
func TestRoundTripsTakeTheLatency(t *testing.T) {
	address := serve(t, echo)
	for _, latency := range latencies {
		n := max(9, int(100*time.Millisecond/latency))
		took := roundTrips(t, dialTo(t, address, Conditions{Latency: latency}), n)
		if shortest := time.Duration(took[0]); shortest < latency {
			t.Errorf("latency %v: a round trip took %v, less than that", latency, shortest)
		}
	}
}

// In virtual time, each round trip takes exactly the latency.
func TestRoundTripsAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, latency := range latencies {
			near, far := pipe(Conditions{Latency: latency})
			go func() { _, _ = io.Copy(far, far) }()
			took := roundTrips(t, near, 20)
			if want := int64(latency); took[0] != want || took[len(took)-1] != want {
				t.Errorf("latency %v: round trips took %v … %v", latency, time.Duration(took[0]),
					time.Duration(took[len(took)-1]))
			}
			closeBoth(near, far)
		}
	})
}

// In virtual time no piece is late, and each piece is one sample. Waiting for the reader, or because of a fault, does
// not count as late.
func TestDelaysAreOfTheNetworkAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Conditions{Latency: 5 * time.Millisecond, Delays: new(Delays), Faults: NewFaults(1)}
		near, far := pipe(c)
		go func() { _, _ = io.Copy(far, far) }()
		roundTrips(t, near, 20)
		if _, err := near.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := io.ReadFull(near, make([]byte, 50)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(near, make([]byte, 50)); err != nil {
			t.Fatal(err)
		}
		if d := c.Delays.Take(); d.Count() != 42 || d.Max() != 0 {
			t.Errorf("%d samples up to %v, want one for each of 42 pieces, of 0", d.Count(), time.Duration(d.Max()))
		}
		go func() {
			stall := c.Faults.Stall(1)
			time.Sleep(time.Second)
			stall.End()
		}()
		time.Sleep(time.Millisecond)
		roundTrips(t, near, 1)
		if d := c.Delays.Take(); d.Max() != 0 {
			t.Errorf("a stall counts as a delay of %v", time.Duration(d.Max()))
		}
		roundTrips(t, near, 1)
		closeBoth(near, far)
		if d := c.Delays.Take(); d.Count() != 2 {
			t.Errorf("%d samples of a connection that was closed, want those of 2 pieces", d.Count())
		}
	})
}

// A late piece is detected. Its delay is at least the time for which the connection was blocked, and at most the excess
// of the round trip.
func TestDelaysAreFound(t *testing.T) {
	const latency, kept = 2 * time.Millisecond, 20 * time.Millisecond
	c := Conditions{Latency: latency, Delays: new(Delays)}
	near := dialTo(t, serve(t, echo), c)
	line := near.(halfCloser).in
	// holdBack delays a response in flight. It reports whether it did so before the round trip was over.
	holdBack := func(over <-chan struct{}) bool {
		for {
			line.mu.Lock()
			if !line.marks.empty() {
				_ = clock.Until(t.Context(), line.marks.first().at+int64(kept))
				line.mu.Unlock()
				return true
			}
			line.mu.Unlock()
			select {
			case <-over:
				return false
			default:
				runtime.Gosched()
			}
		}
	}
	var took int64
	for held := false; !held; { // the response may arrive between two checks
		c.Delays.Take()
		over, result := make(chan struct{}), make(chan bool)
		go func() { result <- holdBack(over) }()
		took = roundTrips(t, near, 1)[0]
		close(over)
		held = <-result
	}
	if d := c.Delays.Take(); d.Count() != 2 || d.Max() < int64(kept) || d.Max() > took-int64(latency) {
		t.Errorf("%d samples up to %v for a round trip of %v that was kept for %v", d.Count(), time.Duration(d.Max()),
			time.Duration(took), kept)
	}
}

// Only the bytes in flight limit the throughput: 4 MiB per 5 ms. With one chunk per round trip it would take 10 s.
// BenchmarkThroughput measures rates on loopback.
func TestLatencyDoesNotBoundThroughput(t *testing.T) {
	const size, latency = 64 << 20, 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		near, far := pipe(Conditions{Latency: latency})
		begin := clock.Now()
		got := make(chan int64, 1)
		go func() {
			n, _ := io.CopyN(io.Discard, far, size)
			got <- n
		}()
		chunk := make([]byte, 64<<10)
		for range size / len(chunk) {
			if _, err := near.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		if n, took, want := <-got, since(begin), size/DefaultBuffer*latency/2; n != size || took != want {
			t.Errorf("%d bytes in %v, want %d in %v", n, took, size, want)
		}
		closeBoth(near, far)
	})
}

// A transfer is never faster than the bandwidth. It is measured from before the first byte, so a late reader only makes
// it longer. TestBandwidthIsExact proves the upper bound.
func TestBandwidth(t *testing.T) {
	for _, latency := range []time.Duration{0, 20 * time.Millisecond} {
		near, far := connect(t, Conditions{Latency: latency, Bandwidth: bandwidth})
		want := transferTime(2_000_000, latency)
		for way, took := range map[string]time.Duration{"out": transfer(t, near, far, 2_000_000),
			"in": transfer(t, far, near, 2_000_000)} {
			if took < want*99/100 {
				t.Errorf("latency %v, %s: took %v, less than the %v that the bandwidth allows", latency, way, took,
					want)
			}
		}
	}
}

// In virtual time, a transfer takes exactly the time that bandwidth and latency define.
func TestBandwidthIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, latency := range []time.Duration{0, 20 * time.Millisecond} {
			near, far := pipe(Conditions{Latency: latency, Bandwidth: bandwidth})
			want := transferTime(4_000_000, latency)
			for way, took := range map[string]time.Duration{"out": transfer(t, near, far, 4_000_000),
				"in": transfer(t, far, near, 4_000_000)} {
				if off := (took - want).Abs(); off > time.Microsecond { // rounding per piece
					t.Errorf("latency %v, %s: took %v, want %v", latency, way, took, want)
				}
			}
			closeBoth(near, far)
		}
	})
}

const bandwidth = 20_000_000 // bytes per second

func transferTime(size int, latency time.Duration) time.Duration {
	return time.Duration(size)*time.Second/bandwidth + latency/2
}

// transfer returns the duration of a transfer of size bytes.
func transfer(t *testing.T, from, to net.Conn, size int64) time.Duration {
	t.Helper()
	begin := clock.Now()
	go func() {
		if _, err := from.Write(make([]byte, size)); err != nil {
			t.Errorf("send: %v", err)
		}
	}()
	if n, err := io.CopyN(io.Discard, to, size); err != nil {
		t.Errorf("received %d bytes: %v", n, err)
	}
	return since(begin)
}

// pipe returns a connection with conditions in a bubble, and its peer.
func pipe(c Conditions) (near, far net.Conn) {
	inner, far := net.Pipe()
	return newConn(inner, newPath(c, 1), newPath(c, 2), c), far
}

// closeBoth waits for the goroutines of closed connections: a bubble's time stands still when its function returns.
func closeBoth(near, far net.Conn) {
	near.Close()
	far.Close()
	time.Sleep(time.Second)
}

// BenchmarkRoundTrip reports the excess of round trips of 100 bytes on loopback over the configured latency. The bare
// one is the round trip of loopback itself.
func BenchmarkRoundTrip(b *testing.B) {
	for _, latency := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
		50 * time.Millisecond} {
		b.Run(latency.String(), func(b *testing.B) {
			near := dialTo(b, serve(b, echo), Conditions{Latency: latency})
			took := roundTrips(b, near, b.N)
			for _, q := range []struct {
				name string
				of   float64
			}{{"p50-over-µs", 0.5}, {"p99-over-µs", 0.99}, {"max-over-µs", 1}} {
				over := took[int(q.of*float64(len(took)-1))] - int64(latency)
				b.ReportMetric(float64(over)/1e3, q.name)
			}
		})
	}
}

// BenchmarkThroughput sends writes of 64 KiB to a peer that discards them.
func BenchmarkThroughput(b *testing.B) {
	for _, latency := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond} {
		b.Run(latency.String(), func(b *testing.B) {
			near := dialTo(b, serve(b, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c); c.Close() }),
				Conditions{Latency: latency})
			chunk := make([]byte, 64<<10)
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				if _, err := near.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
			closeWrite(b, near)
			_, _ = near.Read(chunk)
		})
	}
}

// BenchmarkSmallWrites sends writes of 100 bytes, to measure the cost of a simulated connection per message.
func BenchmarkSmallWrites(b *testing.B) {
	for _, latency := range []time.Duration{0, 10 * time.Millisecond} {
		b.Run(latency.String(), func(b *testing.B) {
			near := dialTo(b, serve(b, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c); c.Close() }),
				Conditions{Latency: latency})
			chunk := make([]byte, 100)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := near.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
