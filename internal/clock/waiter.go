package clock

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// When Paced spins, and how. Sleeps end 40–70 µs late here (see keeper), so that times closer together than about twice
// that cannot be held by sleeping: several would be over at each wake.
const (
	minLimit = 50 * int64(time.Microsecond) // gaps below it are never slept,
	// nor is any above it spun, however late sleeps end: that is a host too busy to spin on
	maxLimit   = 200 * int64(time.Microsecond)
	usualLate  = 50 * int64(time.Microsecond) // of a sleep, until it is known better
	lateStep   = int64(time.Microsecond)
	yieldEvery = 20 * int64(time.Microsecond)
	// not given to others: a yield takes 0.2 µs where nobody waits, and more if somebody does
	lastPart  = 2 * int64(time.Microsecond)
	worked    = int64(time.Microsecond) // a yield that took longer had others do something
	pollEvery = 250 * int64(time.Microsecond)
)

var (
	spinning atomic.Int32 // goroutines that spin at the moment
	// GOMAXPROCS, which is not read every time since that takes the scheduler's lock; 0: not read yet
	processors atomic.Int32
	spun       atomic.Int64
)

// Spun is the time in nanoseconds that waits in this process have spent polling the clock instead of sleeping: an upper
// bound of the processor time that they took, as the operating system may have interrupted them. Safe for concurrent
// use.
func Spun() int64 { return spun.Load() }

// Waiter waits like Until without allocating after its first wait. The zero value is ready. It serves one
// goroutine at a time and holds nothing between waits: it can simply be dropped. One that was used outside of a
// synctest bubble is of no use inside, and the other way round.
type Waiter struct {
	alarm  Alarm
	spun   int64 // not taken yet
	late   int64 // how late about half of its sleeps end, less usualLate
	rested int64 // when it last slept or polled
}

// Until is the function Until of this package.
func (w *Waiter) Until(ctx context.Context, at int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if Now() >= at {
		return nil
	}
	return w.sleep(ctx, at)
}

// Paced is Until for one of many points in time that are gap nanoseconds apart on average. It sleeps like Until where
// that holds such a pace, and spins where it does not, which TakeSpun counts. A spinning goroutine lets others run
// first, in all but the last 2 µs. No more than GOMAXPROCS goroutines spin at a time, the others sleep; and when all
// processors spin, so that nobody would look at the network (Go does then every 10 ms), each spinner sees to it every
// 250 µs.
func (w *Waiter) Paced(ctx context.Context, at, gap int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := Now()
	switch limit := w.limit(); {
	case now >= at:
		return nil
	case gap >= limit || bubbled():
		return w.slept(ctx, at)
	case at-now > 4*limit: // a pause in what is fast otherwise
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

// TakeSpun is how many nanoseconds Paced has spent polling the clock since it was asked last.
func (w *Waiter) TakeSpun() int64 {
	n := w.spun
	w.spun = 0
	return n
}

// limit is the gap below which sleeping does not do.
func (w *Waiter) limit() int64 { return min(max(2*(usualLate+w.late), minLimit), maxLimit) }

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
	w.late -= w.late / 4096 // so that it tries sleeping again, where it was only driven off by a bad time
}

// slept sleeps, and learns how late sleeps end: its estimate moves by a step up or down, and so stays at the median.
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

// poll has Go look at the network and run what it finds there: it waits for an alarm that is due already, which the
// timekeeper hears of through the network poller. It takes 16–30 µs where there is nothing.
func (w *Waiter) poll(ctx context.Context) {
	if k := theKeeper(); k != nil {
		w.ready()
		w.alarm.kept = true
		k.set(&w.alarm, 1)
		_ = w.await(ctx) // an end of ctx shows in the next wait
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
		select { // a token that was sent meanwhile must not end the next wait
		case <-w.alarm.c:
		default:
		}
		return ctx.Err()
	}
}
