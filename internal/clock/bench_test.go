package clock

import (
	"context"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"
)

var sink int64

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		sink = Now()
	}
}

func BenchmarkTimeSince(b *testing.B) {
	base := time.Now()
	for b.Loop() {
		sink = int64(time.Since(base))
	}
}

// BenchmarkSendDelay waits for times that are 1 ms apart, and reports the delay of the wake-ups, idle and with busy TCP
// connections in the same process. One operation is one wait.
func BenchmarkSendDelay(b *testing.B) {
	var w Waiter
	timer := time.NewTimer(0)
	<-timer.C
	ways := []struct {
		name string
		wait func(at int64)
	}{
		{"Waiter", func(at int64) { _ = w.Until(context.Background(), at) }},
		{"Sleep", func(at int64) { time.Sleep(time.Duration(at - Now())) }},
		{"Timer", func(at int64) { timer.Reset(time.Duration(at - Now())); <-timer.C }},
	}
	for _, load := range []struct {
		name  string
		pairs int
	}{{"idle", 0}, {"1pair", 1}, {"8pairs", 8}} {
		for _, way := range ways {
			b.Run(load.name+"/"+way.name, func(b *testing.B) {
				for range load.pairs {
					pingPong(b)
				}
				late := make([]int64, 0, b.N)
				for range b.N {
					at := Now() + int64(time.Millisecond)
					way.wait(at)
					late = append(late, Now()-at)
				}
				reportQuantiles(b, late)
			})
		}
	}
}

// BenchmarkManyWaiters measures the cost and the delay of the timekeeper at 200,000 waits per second, from 2,000
// goroutines with an interval of 10 ms. One operation is one wait.
func BenchmarkManyWaiters(b *testing.B) {
	const waiters = 2000
	rounds := b.N/waiters + 1
	late := make([]int64, waiters*rounds)
	done := make(chan struct{})
	begin := Now() + int64(20*time.Millisecond)
	for i := range waiters {
		go func() {
			var w Waiter
			for r := range rounds {
				at := begin + int64(r)*int64(10*time.Millisecond) + int64(i)*5000
				_ = w.Until(context.Background(), at)
				late[i*rounds+r] = Now() - at
			}
			done <- struct{}{}
		}()
	}
	for range waiters {
		<-done
	}
	reportQuantiles(b, late)
}

// BenchmarkPacing waits for 100,000 times per second on one core, alternately with a loop that polls the clock and with
// Paced, 2 ms each. It reports the delays, the ratio of the 99th percentiles, and the share of a core that Paced spent
// polling. On a busy machine both are dominated by preemptions. The metrics with the prefix calm- use only pairs
// without a preemption, by the system's count. One operation is one turn of each.
func BenchmarkPacing(b *testing.B) {
	const gap, points = int64(10 * time.Microsecond), 200
	for _, load := range []struct {
		name  string
		pairs int
	}{{"idle", 0}, {"1pair", 1}} {
		b.Run(load.name, func(b *testing.B) {
			for range load.pairs {
				pingPong(b)
			}
			var w Waiter
			var all, calm [2][]int64
			var elapsed, spent int64
			turns := [2]func(at int64){
				func(at int64) {
					for Now() < at {
					}
				},
				func(at int64) { _ = w.Paced(context.Background(), at, gap) },
			}
			for i := range b.N {
				var late [2][]int64
				before := interruptions(b)
				for turn := range 2 {
					side := (i + turn) % 2 // the order alternates
					begin := Now()
					for at := begin + gap; len(late[side]) < points; at += gap {
						turns[side](at)
						late[side] = append(late[side], Now()-at)
					}
					elapsed += int64(side) * (Now() - begin)
				}
				spent += w.TakeSpun()
				uninterrupted := interruptions(b) == before
				for side := range 2 {
					all[side] = append(all[side], late[side]...)
					if uninterrupted {
						calm[side] = append(calm[side], late[side]...)
					}
				}
			}
			reportPair(b, "", all)
			reportPair(b, "calm-", calm)
			b.ReportMetric(float64(len(calm[0]))/float64(len(all[0])), "calm-part")
			b.ReportMetric(float64(spent)/float64(elapsed), "spin-cores")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// interruptions returns the number of involuntary context switches of this process.
func interruptions(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Nivcsw
}

func reportPair(b *testing.B, prefix string, late [2][]int64) {
	if len(late[0]) == 0 {
		return
	}
	var p99 [2]float64
	for side, name := range []string{"bare-", "paced-"} {
		of := late[side]
		slices.Sort(of)
		p99[side] = float64(of[int(0.99*float64(len(of)-1))]) / 1e3
		b.ReportMetric(float64(of[len(of)/2])/1e3, prefix+name+"p50-µs")
		b.ReportMetric(p99[side], prefix+name+"p99-µs")
	}
	b.ReportMetric(p99[1]/p99[0], prefix+"p99-ratio")
}

func reportQuantiles(b *testing.B, late []int64) {
	slices.Sort(late)
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50-µs", 0.5}, {"p99-µs", 0.99}, {"p99.9-µs", 0.999}, {"max-µs", 1}} {
		b.ReportMetric(float64(late[int(q.of*float64(len(late)-1))])/1e3, q.name)
	}
}

// pingPong keeps a loopback connection busy, with both ends in this process, until the end of the benchmark.
func pingPong(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	near, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		b.Fatal(err)
	}
	listener.Close()
	b.Cleanup(func() { near.Close(); far.Close() })
	bounce := func(c net.Conn) {
		buffer := make([]byte, 128)
		for {
			n, err := c.Read(buffer)
			if err != nil {
				return
			}
			if _, err := c.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	go bounce(far)
	go bounce(near)
	if _, err := near.Write(make([]byte, 100)); err != nil {
		b.Fatal(err)
	}
}
