package clock

import (
	"context"
	"errors"
	"net"
	"path/filepath"
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

// A long wait in a fast series sleeps until shortly before its end.
func TestPacedSleepsThroughPauses(t *testing.T) {
	var w Waiter
	at := Now() + int64(50*time.Millisecond)
	if err := w.Paced(t.Context(), at, 1000); err != nil {
		t.Fatal(err)
	}
	if n, limit := w.TakeSpun(), Now()-(at-maxLimit); n > limit { // the wait ends late on a busy machine
		t.Errorf("spun for %v, want the last %v at most", time.Duration(n), time.Duration(limit))
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

// In a bubble, time stands still while a goroutine runs, so spinning would never end.
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

// While every processor spins, goroutines that wait for the network run at each poll. Go's own poll interval is 10 ms.
func TestSpinningLeavesTheNetworkAlive(t *testing.T) {
	if theKeeper() == nil {
		t.Skip("on this platform there is no timekeeper, and a spinner does not poll")
	}
	defer func() { countProcessors() }()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	countProcessors()
	// A message through a Unix socket is available when its write returns, independent of the load of the host.
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := net.Dial("unix", listener.Addr().String())
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
	const wanted = 500
	var w Waiter
	begin, polls := Now(), 0
	for at := begin; polls < wanted && Now() < begin+int64(2*time.Minute); at = max(at, Now()) + 10_000 {
		before := w.rested
		_ = w.Paced(t.Context(), at, 10_000)
		if w.rested != before {
			polls++
		}
	}
	got := trips.Load()
	near.Close()
	far.Close()
	<-done
	<-done
	if polls < wanted || got < wanted/2 {
		t.Errorf("%d reads in %d polls, want %d in %d at least", got, polls, wanted/2, wanted)
	}
	t.Logf("%d reads in %d polls and %v", got, polls, time.Duration(Now()-begin))
}

func TestPacedDoesNotAllocate(t *testing.T) {
	var w Waiter
	if n := testing.AllocsPerRun(100, func() { _ = w.Paced(context.Background(), Now()+20_000, 10_000) }); n >= 1 {
		t.Errorf("a wait allocates %v times", n)
	}
}
