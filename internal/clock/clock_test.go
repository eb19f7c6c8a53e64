package clock

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

const childVariable = "CLOCK_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		const wait = 30 * time.Millisecond
		at, begin := Now(), time.Now()
		_ = Until(context.Background(), at+int64(wait))
		println(strconv.FormatInt(at, 10), strconv.FormatInt(int64(time.Since(begin)), 10), ID())
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("example.org/lockstep/lockstep/internal/clock.(*keeper).keep"))
}

// alarmsLeft returns the number of alarms in the timekeeper. An alarm that remains after its wait is a leak.
func alarmsLeft() int {
	k := theKeeper()
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.alarms)
}

func TestNowComparesAcrossProcesses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("on this platform the clock is the process's own")
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVariable+"=1")
	before := Now()
	out, err := child.CombinedOutput()
	after := Now()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		t.Fatalf("child printed %q, want its time, a wait and its clock id", out)
	}
	at, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || at <= before || at >= after {
		t.Errorf("child read %s (%v), between our %d and %d: two processes of one boot do not compare", fields[0], err,
			before, after)
	}
	if fields[2] != ID() {
		t.Errorf("child's clock is %q, ours %q: agents of one host would count as on different clocks", fields[2], ID())
	}
}

func TestNowIsMonotonicTime(t *testing.T) {
	previous := Now()
	for range 10_000 {
		now := Now()
		if now < previous {
			t.Fatalf("clock went back by %d ns", previous-now)
		}
		previous = now
	}
	if n := testing.AllocsPerRun(100, func() { Now() }); n != 0 {
		t.Errorf("Now allocates %v times", n)
	}
}

func TestUntilWaitsAndNeverReturnsEarly(t *testing.T) {
	for _, wait := range []time.Duration{-time.Second, 0, time.Microsecond, 100 * time.Microsecond, time.Millisecond,
		20 * time.Millisecond} {
		at := Now() + int64(wait)
		if err := Until(t.Context(), at); err != nil {
			t.Fatalf("Until(%v): %v", wait, err)
		}
		if early := at - Now(); early > 0 {
			t.Errorf("Until(%v) returned %d ns early", wait, early)
		}
	}
}

// The last alarm is an hour away. If the timekeeper forgets a waiter, no later alarm wakes it, and the test hangs.
func TestManyWaitersWake(t *testing.T) {
	const waiters = 5000
	far := NewAlarm(make(chan struct{}, 1))
	far.Set(Now() + int64(time.Hour))
	var group sync.WaitGroup
	var early, late atomic.Int64
	begin := Now()
	for i := range waiters {
		group.Go(func() {
			var w Waiter
			for k := range 3 { // interleaved, so that each wait is inserted between earlier and later ones
				at := begin + int64(time.Duration(50+k*30+(i*7919)%29)*time.Millisecond)
				if err := w.Until(t.Context(), at); err != nil {
					t.Error(err)
				}
				now := Now()
				if now < at {
					early.Add(1)
				}
				if now > at+int64(time.Second) {
					late.Add(1)
				}
			}
		})
	}
	group.Wait()
	if early.Load() > 0 {
		t.Errorf("of %d waits %d ended early", 3*waiters, early.Load())
	}
	if os.Getenv("LOCKSTEP_LONG") != "" && late.Load() > 0 {
		t.Errorf("of %d waits %d ended more than a second late", 3*waiters, late.Load())
	}
	far.Stop()
	if n := alarmsLeft(); n != 0 {
		t.Errorf("%d alarms left with the timekeeper after all waits ended", n)
	}
}

func TestUntilEndsWithItsContext(t *testing.T) {
	var w Waiter
	for _, wait := range []time.Duration{time.Hour, 0} { // an ended context is an error also for a time in the past
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if wait == 0 {
			cancel()
		}
		if err := w.Until(ctx, Now()+int64(wait)); !errors.Is(err, ctx.Err()) || err == nil {
			t.Errorf("Until(%v) = %v, want the context's %v", wait, err, ctx.Err())
		}
		cancel()
	}
	if n := alarmsLeft(); n != 0 {
		t.Errorf("%d alarms left with the timekeeper after a cancelled wait", n)
	}
}

// If a cancellation coincides with the alarm, no token may remain that ends the next wait early.
func TestCancelledWaitDoesNotEndTheNext(t *testing.T) {
	var w Waiter
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		at := Now() + int64(time.Duration(50+i)*time.Microsecond)
		go func() {
			_ = Until(context.Background(), at)
			cancel()
		}()
		_ = w.Until(ctx, at)
		next := Now() + int64(50*time.Microsecond)
		if err := w.Until(t.Context(), next); err != nil || Now() < next {
			t.Fatalf("wait %d after a cancelled one: %v, %d ns early", i, err, next-Now())
		}
		<-ctx.Done()
	}
}

func TestAlarmSetAgainAndStopped(t *testing.T) {
	for name, run := range map[string]func(func(*testing.T)){
		"host":   func(f func(*testing.T)) { f(t) },
		"bubble": func(f func(*testing.T)) { synctest.Test(t, f) },
	} {
		run(func(t *testing.T) {
			c := make(chan struct{}, 1)
			a := NewAlarm(c)
			begin := Now()
			a.Set(begin + int64(time.Hour))
			a.Set(begin + int64(2*time.Millisecond))
			<-c
			if now := Now(); now < begin+int64(2*time.Millisecond) {
				t.Errorf("%s: alarm set again came %v after it was set, want 2ms", name, time.Duration(now-begin))
			}
			a.Set(Now() + int64(time.Millisecond))
			a.Stop()
			select { // it may have arrived before Stop
			case <-c:
			default:
			}
			_ = Until(t.Context(), Now()+int64(3*time.Millisecond))
			if len(c) > 0 {
				t.Errorf("%s: a stopped alarm rang", name)
			}
			a.Set(Now() - 1)
			if len(c) != 1 {
				t.Errorf("%s: an alarm for the past did not ring at once", name)
			}
		})
	}
}

func TestBubble(t *testing.T) {
	if bubbled() {
		t.Fatal("outside of a bubble, bubbled says we are in one")
	}
	synctest.Test(t, func(t *testing.T) {
		if !bubbled() {
			t.Fatal("in a bubble, bubbled says we are not")
		}
		start, fake := Now(), time.Now()
		time.Sleep(time.Minute)
		if got := Now() - start; got != int64(time.Minute) {
			t.Errorf("Now moved by %v in a minute of the bubble", time.Duration(got))
		}
		var w Waiter
		for i := range int64(3) {
			at := start + int64(time.Minute) + (i+1)*int64(time.Hour)
			if err := w.Until(t.Context(), at); err != nil || Now() != at {
				t.Errorf("wait %d in the bubble: %v, %v after the time", i, err, time.Duration(Now()-at))
			}
		}
		if got, want := time.Since(fake), 3*time.Hour+time.Minute; got != want {
			t.Errorf("bubble's time moved by %v, want %v", got, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Until(ctx, Now()+int64(time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Until = %v, want the deadline of its context", err)
		}
	})
}

func TestWaiterDoesNotAllocate(t *testing.T) {
	var w Waiter
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if n := testing.AllocsPerRun(100, func() { _ = w.Until(ctx, Now()+int64(20*time.Microsecond)) }); n >= 1 {
		t.Errorf("a wait allocates %v times", n)
	}
}

// Containers of one boot may have different time namespaces, and then have different clocks.
func TestTimeNamespacesAreToldApart(t *testing.T) {
	for offsets, want := range map[string]string{
		"": "", "monotonic           0         0\nboottime           0         0\n": "",
		"monotonic           0         0\nboottime       86400         0\n": "",
		"monotonic       86400         5\nboottime           0         0\n": "+86400s5ns",
	} {
		if got := shifted(offsets); got != want {
			t.Errorf("%q: %q, want %q", offsets, got, want)
		}
	}
}
