package clock

import (
	"context"
	"net"
	"slices"
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

// BenchmarkLateness waits for points 1 ms apart and reports how late the wakes come, idle and beside busy
// TCP connections of the same process. One operation is one wait.
func BenchmarkLateness(b *testing.B) {
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
	for _, beside := range []struct {
		name  string
		pairs int
	}{{"idle", 0}, {"1pair", 1}, {"8pairs", 8}} {
		for _, way := range ways {
			b.Run(beside.name+"/"+way.name, func(b *testing.B) {
				for range beside.pairs {
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

// BenchmarkManyWaiters has 2,000 goroutines wait for points 10 ms apart each: the timekeeper's cost and its
// lateness at 200,000 waits a second. One operation is one wait.
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

func reportQuantiles(b *testing.B, late []int64) {
	slices.Sort(late)
	for _, q := range []struct {
		name string
		of   float64
	}{{"p50-µs", 0.5}, {"p99-µs", 0.99}, {"p99.9-µs", 0.999}, {"max-µs", 1}} {
		b.ReportMetric(float64(late[int(q.of*float64(len(late)-1))])/1e3, q.name)
	}
}

// pingPong keeps one loopback connection busy, both ends in this process, until the benchmark ends.
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
