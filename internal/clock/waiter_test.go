package clock

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPacedSpinsOnlyWhereSleepingDoesNotDo(t *testing.T) {
	for _, x := range []struct {
		gap   time.Duration
		spins bool
	}{{10 * time.Microsecond, true}, {time.Millisecond, false}} {
		var w Waiter
		before, at := Spun(), Now()
		for range 200 {
			at = max(at, Now()) + int64(x.gap)
			if err := w.Paced(t.Context(), at, int64(x.gap)); err != nil || Now() < at {
				t.Fatalf("gap %v: %v, %d ns early", x.gap, err, at-Now())
			}
		}
		all := Spun() - before
		if own := w.TakeSpun(); own > 0 != x.spins || all != own {
			t.Errorf("gap %v: %v spent spinning, %v by the process", x.gap, time.Duration(own), time.Duration(all))
		}
		if again := w.TakeSpun(); again != 0 {
			t.Errorf("gap %v: %v taken twice", x.gap, time.Duration(again))
		}
	}
	if n := spinning.Load(); n != 0 {
		t.Errorf("%d goroutines still count as spinning", n)
	}
}

// A long wait in a fast series is slept up to its last part.
func TestPacedSleepsThroughPauses(t *testing.T) {
	var w Waiter
	begin := Now()
	if err := w.Paced(t.Context(), begin+int64(50*time.Millisecond), 1000); err != nil {
		t.Fatal(err)
	}
	if n := w.TakeSpun(); n > int64(40*time.Millisecond) {
		t.Errorf("spun for %v of 50ms", time.Duration(n))
	}
}

func TestPacedEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var w Waiter
	if err := w.Paced(ctx, Now()+int64(time.Hour), 1000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := w.Paced(ctx, 0, 1000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("for a time in the past: %v", err)
	}
}

// Time stands still in a bubble while anybody runs there: one who spun would spin for ever.
func TestPacedInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Waiter
		at := Now()
		for range 1000 {
			at += 10_000
			if err := w.Paced(t.Context(), at, 10_000); err != nil || Now() != at {
				t.Fatalf("%v, %v off", err, time.Duration(Now()-at))
			}
		}
	})
}

// While every processor spins, those who wait for the network still get what is theirs: Go alone would look every 10 ms.
func TestSpinningLeavesTheNetworkAlive(t *testing.T) {
	defer func() { countProcessors() }()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	countProcessors()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var trips atomic.Int64
	bounce := func(c net.Conn) {
		buffer := make([]byte, 1)
		for {
			if _, err := c.Read(buffer); err != nil {
				return
			}
			trips.Add(1)
			if _, err := c.Write(buffer); err != nil {
				return
			}
		}
	}
	done := make(chan struct{}, 2)
	for _, c := range []net.Conn{near, far} {
		go func() { bounce(c); done <- struct{}{} }()
	}
	if _, err := near.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	var w Waiter
	begin, spinBegin := Now(), Spun()
	for at := begin; at < begin+int64(300*time.Millisecond); at += 10_000 {
		_ = w.Paced(t.Context(), at, 10_000)
	}
	spent := time.Duration(Spun() - spinBegin)
	near.Close()
	far.Close()
	<-done
	<-done
	if least := int64(3 * spent / (10 * time.Millisecond)); trips.Load() < least {
		t.Errorf("%d reads in %v of spinning, want %d at least", trips.Load(), spent, least)
	} else {
		t.Logf("%d reads in %v of spinning", trips.Load(), spent)
	}
}

func TestPacedDoesNotAllocate(t *testing.T) {
	var w Waiter
	if n := testing.AllocsPerRun(100, func() { _ = w.Paced(context.Background(), Now()+20_000, 10_000) }); n >= 1 {
		t.Errorf("a wait allocates %v times", n)
	}
}
