package clock

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// Parameters of spinning in Paced. Sleeps typically end 40–70 µs late (see keeper). Gaps below about twice that cannot
// be kept by sleeping, because several would end at each wake-up.
const (
	minLimit = 50 * int64(time.Microsecond) // shorter gaps always spin
	// longer gaps never spin, however late sleeps end: such a host is too busy for spinning
	maxLimit   = 200 * int64(time.Microsecond)
	usualLate  = 50 * int64(time.Microsecond) // initial estimate of how late a sleep ends
	lateStep   = int64(time.Microsecond)
	yieldEvery = 20 * int64(time.Microsecond)
	// the spinner does not yield in this last part; a yield takes 0.2 µs if no goroutine waits, and more otherwise
	lastPart  = 2 * int64(time.Microsecond)
	worked    = int64(time.Microsecond) // a longer yield ran other goroutines
	pollEvery = 250 * int64(time.Microsecond)
)

var (
	spinning atomic.Int32 // number of goroutines that spin at present
	// GOMAXPROCS, cached because reading it takes the scheduler's lock; 0: not read yet
	processors atomic.Int32
	spun       atomic.Int64
)

// Spun returns the time in ns for which waits of this process have polled the clock instead of sleeping. It is an upper
// bound of their processor time, because the operating system may have interrupted them. It is safe for concurrent use.
func Spun() int64 { return spun.Load() }

// Waiter waits like Until without allocating after its first wait. The zero value is ready to use. It must be used by
// one goroutine at a time. It holds nothing between waits and need not be closed. A Waiter used outside of a synctest
// bubble must not be used inside, and vice versa.
type Waiter struct {
	alarm  Alarm
	spun   int64 // since the last TakeSpun
	late   int64 // estimated median delay of sleeps, minus usualLate
	rested int64 // time of the last sleep or poll
}

// Until is like the function Until of this package.
func (w *Waiter) Until(ctx context.Context, at int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if Now() >= at {
		return nil
	}
	return w.sleep(ctx, at)
}

// Paced is like Until, for one of many times that are gap ns apart on average. It sleeps if sleeping can keep that
// pace, and spins otherwise; TakeSpun returns the time spent spinning. A spinning goroutine yields to others except in
// the last 2 µs. At most GOMAXPROCS goroutines spin at a time; others sleep. If all processors spin, Go polls the
// network only every 10 ms. Each spinner then triggers a poll every 250 µs.
func (w *Waiter) Paced(ctx context.Context, at, gap int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := Now()
	// below this gap, sleeping cannot keep the pace
	switch limit := min(max(2*(usualLate+w.late), minLimit), maxLimit); {
	case now >= at:
		return nil
	case gap >= limit || bubbled():
		return w.slept(ctx, at)
	case at-now > 4*limit: // a pause in a fast series
		if err := w.slept(ctx, at-limit); err != nil {
			return err
		}
	}
	all := processors.Load()
	if all == 0 {
		all = countProcessors()
	}
	others := spinning.Add(1) - 1
	if others >= all {
		spinning.Add(-1)
		return w.slept(ctx, at)
	}
	if others == all-1 && now-w.rested > pollEvery {
		w.poll(ctx)
	}
	w.spin(at)
	return nil
}

// TakeSpun returns the time in ns for which Paced has polled the clock since the last call.
func (w *Waiter) TakeSpun() int64 {
	n := w.spun
	w.spun = 0
	return n
}

func countProcessors() int32 {
	n := int32(runtime.GOMAXPROCS(0))
	processors.Store(n)
	return n
}

// spin polls the clock until at.
func (w *Waiter) spin(at int64) {
	begin := Now()
	now, yielded, others := begin, int64(0), int64(0)
	for now < at {
		if at-now > lastPart && now-yielded >= yieldEvery {
			runtime.Gosched()
			yielded = Now()
			if took := yielded - now; took > worked {
				others += took
			}
			now = yielded
			continue
		}
		now = Now()
	}
	spinning.Add(-1)
	n := now - begin - others
	w.spun += n
	spun.Add(n)
	w.late -= w.late / 4096 // lets it try sleeping again after a temporary delay
}

// slept sleeps and updates the estimate of how late sleeps end. The estimate moves by one step up or down, and so
// follows the median.
func (w *Waiter) slept(ctx context.Context, at int64) error {
	if Now() >= at {
		return nil
	}
	if err := w.sleep(ctx, at); err != nil {
		return err
	}
	countProcessors()
	w.rested = Now()
	if w.rested-at > usualLate+w.late {
		w.late = min(w.late+lateStep, maxLimit)
	} else {
		w.late = max(w.late-lateStep, -usualLate)
	}
	return nil
}

func (w *Waiter) sleep(ctx context.Context, at int64) error {
	w.ready()
	w.alarm.Set(at)
	return w.await(ctx)
}

// poll makes Go poll the network and run the goroutines that became ready. It waits for an alarm that is already due,
// which the timekeeper receives through the network poller. It takes 16–30 µs if nothing is ready.
func (w *Waiter) poll(ctx context.Context) {
	if k := theKeeper(); k != nil {
		w.ready()
		w.alarm.kept = true
		k.set(&w.alarm, 1)
		_ = w.await(ctx) // if ctx ended, the next wait reports it
	}
	w.rested = Now()
}

func (w *Waiter) ready() {
	if w.alarm.c == nil {
		w.alarm.c = make(chan struct{}, 1)
	}
}

func (w *Waiter) await(ctx context.Context) error {
	select {
	case <-w.alarm.c:
		return nil
	case <-ctx.Done():
		w.alarm.Stop()
		select { // a token sent in the meantime must not end the next wait
		case <-w.alarm.c:
		default:
		}
		return ctx.Err()
	}
}
